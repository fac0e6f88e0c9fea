// Starts the ranks of this node, passes on their lines and the user's signals, and leaves none
// behind.
//
// - Each rank is a process group of its own, so that a terminal's Ctrl-C reaches it once: through
//   here. Its standard input is empty. It dies with the launcher, however that ends.
// - SIGINT, SIGTERM, SIGHUP and SIGQUIT go to every rank; a terminal's stop and its continuation as
//   well. From the second of the first four on, what is still there after `kill_seconds` is killed.
// - When a rank fails, the others have `grace_seconds` to notice and to end by themselves, then
//   SIGTERM, then `kill_seconds` later SIGKILL.
//
// After it SIGINT and SIGTERM are ignored: the process has nothing left to do but end.
//
// Owner: the command; one at a time in a process. Thread rule: the main thread, no other running.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/status.h"

namespace marea {

struct RankProcess {
  uint32_t rank = 0;  // its name in lines and messages
  // Set in its environment, in place of what the launcher has there.
  std::vector<std::pair<std::string, std::string>> variables;
};

struct ProcessGroupOptions {
  std::string executable;          // as execve takes it
  std::vector<std::string> words;  // the arguments behind the program's name
  std::vector<RankProcess> ranks;  // at least one
  double grace_seconds = 20;
  double kill_seconds = 10;
  // "[rank] " before the lines of stdout; those of stderr always have it. One rank alone writes
  // where the launcher writes, and nothing is prefixed.
  bool prefix_stdout = true;
};

// Runs until the last rank has ended and its lines are written. The exit status of the first rank
// that failed by itself; 1 if it was killed by a signal, 128 + the signal if that came through the
// launcher; 0 if all is well. What happened to a rank is said on stderr, a sentence each. Io: a
// process, a pipe could not be made (those that run are killed), or stdout could not be written.
Result<int> RunRanks(const ProcessGroupOptions& options);

}  // namespace marea
