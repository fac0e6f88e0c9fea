#include "tests/io/child_process.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "io/unique_fd.h"

namespace marea {

std::string RunInChild(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return "no child";
  if (child == 0) {
    from.Reset();
    const std::string text = body();
    const ssize_t written = ::write(to.get(), text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  to.Reset();
  std::string text;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = ::read(from.get(), buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) text += " (died of signal " + std::to_string(WTERMSIG(status)) + ")";
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    text += " (exit status " + std::to_string(WEXITSTATUS(status)) + ")";
  }
  return text;
}

bool ForbidSystemCalls(const std::vector<long>& numbers, int error_number) {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const long number : numbers) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    program.push_back(
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error_number)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

bool LimitLockedMemory(unsigned long bytes) {
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  data[0].permitted &= ~(1U << CAP_IPC_LOCK);
  return ::syscall(SYS_capset, &header, data) == 0;
}

}  // namespace marea
