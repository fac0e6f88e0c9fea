// One rank as a child process: how it is started, and what it left.
//
// Owner: ProcessGroup. Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/status.h"
#include "io/unique_fd.h"

namespace marea {

struct ChildOutputs {
  UniqueFd out, err;  // the reading ends, not blocking; invalid where the child writes directly
};

class ChildProcess {
 public:
  // Starts `executable` with `words` behind the program's name and `variables` set in its
  // environment; with `piped`, its stdout and stderr go to `outputs`. The child has a process group
  // of its own, `mask` for its signals, and is killed when this thread ends.
  static Result<ChildProcess> Start(
      const std::string& executable, const std::vector<std::string>& words,
      const std::vector<std::pair<std::string, std::string>>& variables, bool piped,
      const sigset_t& mask, ChildOutputs& outputs);

  bool running() const { return pid_ > 0; }
  // To the whole process group. Does nothing once the child has been reaped.
  void Send(int signal);
  // The wait status if the child has ended since the last call.
  std::optional<int> Reap();
  // Waits for a child that cannot but end: it was sent SIGKILL.
  void ReapKilled();
  // Whether this signal was sent from here.
  bool WasSent(int signal) const { return sent_.count(signal) > 0; }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  std::set<int> sent_;
};

}  // namespace marea
