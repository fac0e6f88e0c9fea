// The optimizer's own threads.
//
// Apart from ATen's pool, whose size is an input of the run (its kernels change bits with the
// thread count; ours do not) and which torchrun shrinks to one thread by OMP_NUM_THREADS. The pool
// has a fixed number of named threads and no queue: one ParallelFor runs at a time, a second caller
// waits.
//
// Owner: the trainer. Thread rule: ParallelFor may be called by any thread but the pool's own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/mutex.h"
#include "io/status.h"

namespace marea {

class WorkerPool {
 public:
  // Starts `threads` threads, shown by the system as "<name>/0", "<name>/1", ... (15 characters at
  // most). InvalidArgument unless threads is 1 to kThreadsMax; Unavailable if the system refuses
  // one, and then none is left running.
  static constexpr int kThreadsMax = 1024;
  static Result<std::unique_ptr<WorkerPool>> Create(int threads, const std::string& name);

  // Joins the threads. REQUIRES: no ParallelFor is running.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }

  // Calls body(first, last) for pieces that cover [begin, end) exactly once: each begins at
  // begin + k * grain and has `grain` elements, the last one perhaps fewer. Threads take pieces
  // from one counter in ascending order, so one that is slowed by other work holds up none; which
  // thread runs a piece is not fixed. Blocks until all have returned; what they wrote is then
  // visible to the caller. An empty range returns at once. REQUIRES: begin <= end, grain > 0; body
  // does not throw; the caller is not a thread of a pool.
  void ParallelFor(size_t begin, size_t end, size_t grain,
                   const std::function<void(size_t first, size_t last)>& body);

 private:
  struct Job {
    size_t begin;
    size_t end;
    size_t grain;
    size_t pieces;
    const std::function<void(size_t, size_t)>* body;
  };

  WorkerPool() = default;
  void ThreadMain(std::string thread_name);
  void RunPieces(const Job& job);

  Mutex mutex_;
  CondVar work_;                                 // a job was posted, or stop_
  CondVar idle_;                                 // the job is finished; the pool is free
  const Job* job_ GUARDED_BY(mutex_) = nullptr;  // null when the pool is free
  uint64_t job_number_ GUARDED_BY(mutex_) = 0;   // counts jobs; a thread runs each number once
  int running_ GUARDED_BY(mutex_) = 0;           // threads that have not finished the job
  bool stop_ GUARDED_BY(mutex_) = false;
  std::atomic<size_t> next_piece_{0};  // of the current job
  std::vector<std::thread> threads_;   // fixed after Create
};

}  // namespace marea
