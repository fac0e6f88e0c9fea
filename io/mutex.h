// A mutex whose lock rules are part of the signatures: Clang's -Wthread-safety checks them in the
// lint build (libstdc++'s std::mutex carries no annotations).
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MAREA_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define MAREA_THREAD_ATTRIBUTE(x)
#endif

#define GUARDED_BY(x) MAREA_THREAD_ATTRIBUTE(guarded_by(x))
#define REQUIRES_LOCK(x) MAREA_THREAD_ATTRIBUTE(requires_capability(x))
#define EXCLUDES_LOCK(x) MAREA_THREAD_ATTRIBUTE(locks_excluded(x))

namespace marea {

class MAREA_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void Lock() MAREA_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void Unlock() MAREA_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class MAREA_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MAREA_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() MAREA_THREAD_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // REQUIRES: `mutex` is held; it is held again on return. Wakes spuriously: loop on the condition.
  void Wait(Mutex& mutex) REQUIRES_LOCK(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  template <typename Duration>
  void WaitFor(Mutex& mutex, Duration timeout) REQUIRES_LOCK(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(lock, timeout);
    lock.release();
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace marea
