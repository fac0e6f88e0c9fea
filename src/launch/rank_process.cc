#include "src/launch/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace marea {
namespace {

struct Pipe {
  UniqueFd read_end, write_end;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::Io("a pipe for a rank's lines", errno);
  Pipe made{UniqueFd(ends[0]), UniqueFd(ends[1])};
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return made;
}

// The environment with `variables` in place of those of the same name, as "NAME=value".
std::vector<std::string> MergedEnvironment(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> merged;
  for (const auto& [name, value] : variables) merged.push_back(name + "=" + value);
  const auto is_set = [&](const std::string& entry) {
    return std::any_of(variables.begin(), variables.end(), [&](const auto& variable) {
      return entry.rfind(variable.first + "=", 0) == 0;
    });
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_set(*entry)) merged.emplace_back(*entry);
  }
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the child needs between fork and exec, where nothing may be allocated.
struct Launch {
  const char* executable;
  char** argv;
  char** environment;
  const sigset_t* mask;
  int null_input, out, err;  // out and err: -1 to keep the launcher's
  pid_t parent;
};

[[noreturn]] void BecomeRank(const Launch& launch) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launch.parent) _exit(127);  // it ended before it could be watched
  dup2(launch.null_input, STDIN_FILENO);
  if (launch.out >= 0) dup2(launch.out, STDOUT_FILENO);
  if (launch.err >= 0) dup2(launch.err, STDERR_FILENO);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, launch.mask, nullptr);
  execve(launch.executable, launch.argv, launch.environment);
  constexpr std::string_view kText = "marea: the program cannot be started again\n";
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(127);
}

}  // namespace

Result<ChildProcess> ChildProcess::Start(
    const std::string& executable, const std::vector<std::string>& words,
    const std::vector<std::pair<std::string, std::string>>& variables, bool piped,
    const sigset_t& mask, ChildOutputs& outputs) {
  std::vector<std::string> arguments = {"marea"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<std::string> environment = MergedEnvironment(variables);
  std::vector<char*> argv = Pointers(arguments), entries = Pointers(environment);
  const UniqueFd null_input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_input.valid()) return Status::Io("/dev/null", errno);
  Pipe out, err;
  if (piped) {
    MAREA_ASSIGN_OR_RETURN(out, MakePipe());
    MAREA_ASSIGN_OR_RETURN(err, MakePipe());
  }
  const Launch launch{executable.c_str(), argv.data(),         entries.data(),      &mask,
                      null_input.get(),   out.write_end.get(), err.write_end.get(), getpid()};
  const pid_t pid = fork();
  if (pid < 0) return Status::Io("a process for a rank", errno);
  if (pid == 0) BecomeRank(launch);
  setpgid(pid, pid);  // here as well: a signal may be sent before the child comes to it
  outputs.out = std::move(out.read_end);
  outputs.err = std::move(err.read_end);
  return ChildProcess(pid);
}

void ChildProcess::Send(int signal) {
  if (!running()) return;
  sent_.insert(signal);
  kill(-pid_, signal);
}

std::optional<int> ChildProcess::Reap() {
  int status = 0;
  if (!running() || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = 0;
  return status;
}

void ChildProcess::ReapKilled() {
  int status = 0;
  while (running() && waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

}  // namespace marea
