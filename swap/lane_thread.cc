#include "swap/lane_thread.h"

#include <pthread.h>

#include <utility>

#include "io/check.h"

namespace marea {

void SetThreadName(const std::string& name) {
  // The kernel keeps 15 characters and refuses more. A name is a help only: failure changes
  // nothing.
  (void)pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

LaneThread::LaneThread(std::string name, uint32_t queue_max) : queue_max_(queue_max) {
  {
    MutexLock lock(mutex_);
    queue_.reserve(queue_max_);
  }
  thread_ = std::thread([this, name = std::move(name)] {
    SetThreadName(name);
    Run();
  });
}

LaneThread::~LaneThread() {
  Shutdown();
}

void LaneThread::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    MAREA_CHECK(!stopping_, "a task was posted to a lane that is shut down");
    MAREA_CHECK(queue_.size() < queue_max_, "a lane's queue is full: its depth exceeds its bound");
    queue_.push_back(std::move(task));
  }
  changed_.NotifyOne();
}

void LaneThread::Shutdown() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void LaneThread::Run() {
  std::vector<std::function<void()>> batch;
  batch.reserve(queue_max_);
  while (true) {
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      batch.swap(queue_);
    }
    for (std::function<void()>& task : batch) task();
    batch.clear();
  }
}

}  // namespace marea
