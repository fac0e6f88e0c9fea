// Ranks as real processes, forked from a test that has one thread.
//
// Each child runs a function and sends back the text it returns; whatever happens, no child
// outlives this object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/rank_group.h"
#include "io/unique_fd.h"

namespace marea {

// A port of this machine that was free a moment ago.
uint16_t FreePort();

// Rank `rank` of `size` on this machine.
World LocalWorld(uint32_t rank, uint32_t size, uint16_t port);

class RankProcesses {
 public:
  struct End {
    std::string text;    // what the function returned, "signal N", or "still running"
    double seconds = 0;  // from Start to the end
  };

  ~RankProcesses();
  // The number of the process here: 0, 1, ...
  size_t Start(std::function<std::string()> body);
  void Signal(size_t index, int signal_number);
  // Blocks until the process said `word` with Say, at most 20 s.
  bool Heard(size_t index, const std::string& word);
  // Kills it if it is still there after `limit`.
  End Wait(size_t index, std::chrono::milliseconds limit = std::chrono::seconds(30));
  int process(size_t index) const { return processes_[index].id; }

  // In a child: a word for Heard.
  static void Say(const std::string& word);

 private:
  struct Process {
    pid_t id = -1;
    UniqueFd from;
    std::string said;
    std::chrono::steady_clock::time_point started;
    bool reaped = false;
  };
  // Reads what has come, waiting at most `wait`; false at the end of the text.
  static bool ReadMore(Process& process, std::chrono::milliseconds wait);

  std::vector<Process> processes_;
};

// Runs `body` as each of `size` ranks that have joined, and leaves; "" from each rank, or what is
// wrong.
using RankBody = std::function<std::string(RankGroup&)>;
std::vector<std::string> RunRanks(uint32_t size, const RankBody& body,
                                  const RankGroupOptions& options = {});

}  // namespace marea
