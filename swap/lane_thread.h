// A named thread that runs tasks in the order given.
//
// Owner: whoever has a lane to serve (copies here, compute and optimizer in engine). Thread rule:
// Post from any thread; Shutdown from one. The queue holds at most `queue_max` tasks, allocated at
// the start; the lane's depth bounds what can be posted, so a full queue is a programmer error and
// stops the process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "io/mutex.h"

namespace marea {

// Names the calling thread for debuggers and top (15 characters at most are kept).
void SetThreadName(const std::string& name);

class LaneThread {
 public:
  LaneThread(std::string name, uint32_t queue_max);
  ~LaneThread();  // shuts down

  // Never blocks. REQUIRES: not shut down. `task` must not throw.
  void Post(std::function<void()> task);

  // Runs every task that was posted, then ends the thread. Blocks. Harmless to repeat.
  void Shutdown();

 private:
  void Run();

  const uint32_t queue_max_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: the thread sees every other member
};

}  // namespace marea
