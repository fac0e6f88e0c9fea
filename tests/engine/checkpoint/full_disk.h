// Runs code where space ends: on a file system of a few MiB, or under a limit on file size.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace marea {

inline constexpr int kCannotMount = 99;

// In a child with its own mounts: a tmpfs of `bytes` on `folder`, then `body`, whose value (0 to
// 98) is returned; kCannotMount where mounting is not allowed.
inline int OnSmallFileSystem(const std::string& folder, uint64_t bytes,
                             const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string options = "size=" + std::to_string(bytes);
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(kCannotMount);
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(kCannotMount);
    if (mount("tmpfs", folder.c_str(), "tmpfs", 0, options.c_str()) != 0) _exit(kCannotMount);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// In a child that may not write beyond `bytes` in a file.
inline int UnderFileSizeLimit(uint64_t bytes, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(kCannotMount);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace marea
