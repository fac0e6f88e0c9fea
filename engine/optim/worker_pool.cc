#include "engine/optim/worker_pool.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cfenv>
#include <system_error>
#include <utility>

#include "io/check.h"

namespace marea {
namespace {

constexpr size_t kThreadNameMax = 15;  // the kernel's limit

thread_local bool is_pool_thread = false;

}  // namespace

Result<std::unique_ptr<WorkerPool>> WorkerPool::Create(int threads, const std::string& name) {
  if (threads < 1 || threads > kThreadsMax) {
    return Status::InvalidArgument(
        fmt::format("a pool of {} threads is not possible; 1 to {} are", threads, kThreadsMax));
  }
  std::unique_ptr<WorkerPool> pool(new WorkerPool());
  pool->threads_.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    try {
      pool->threads_.emplace_back(&WorkerPool::ThreadMain, pool.get(),
                                  fmt::format("{}/{}", name, i).substr(0, kThreadNameMax));
    } catch (const std::system_error& error) {
      return Status::Unavailable(fmt::format(
          "the system refused thread {} of {} for the optimizer ({}); use fewer threads", i + 1,
          threads, error.code().message()));
    }
  }
  return pool;
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    MAREA_CHECK(job_ == nullptr, "a WorkerPool was destroyed while ParallelFor ran");
    stop_ = true;
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::ParallelFor(size_t begin, size_t end, size_t grain,
                             const std::function<void(size_t, size_t)>& body) {
  MAREA_CHECK(begin <= end && grain > 0, "ParallelFor needs an ascending range and a grain");
  MAREA_CHECK(!is_pool_thread, "ParallelFor was called from a pool's own thread");
  if (begin == end) return;
  const size_t elements = end - begin;
  const Job job = {begin, end, grain, elements / grain + (elements % grain != 0 ? 1 : 0), &body};

  MutexLock lock(mutex_);
  while (job_ != nullptr) idle_.Wait(mutex_);
  next_piece_.store(0, std::memory_order_relaxed);  // published by the mutex
  job_ = &job;
  ++job_number_;
  running_ = threads();
  const uint64_t own_number = job_number_;
  work_.NotifyAll();
  // The job is on this stack, so wait until every thread has let go of it.
  while (job_number_ == own_number && job_ != nullptr) idle_.Wait(mutex_);
}

void WorkerPool::RunPieces(const Job& job) {
  while (true) {
    const size_t piece = next_piece_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= job.pieces) return;
    const size_t first = job.begin + piece * job.grain;
    (*job.body)(first, std::min(job.end - first, job.grain) + first);
  }
}

void WorkerPool::ThreadMain(std::string thread_name) {
  pthread_setname_np(pthread_self(), thread_name.c_str());
  is_pool_thread = true;
  // A thread inherits its creator's rounding mode and flush-to-zero; some libraries set the latter.
  std::fesetenv(FE_DFL_ENV);
  uint64_t done_number = 0;
  while (true) {
    const Job* job = nullptr;
    {
      MutexLock lock(mutex_);
      while (!stop_ && job_number_ == done_number) work_.Wait(mutex_);
      if (stop_) return;
      done_number = job_number_;
      job = job_;
    }
    RunPieces(*job);
    MutexLock lock(mutex_);
    if (--running_ == 0) {
      job_ = nullptr;
      idle_.NotifyAll();
    }
  }
}

}  // namespace marea
