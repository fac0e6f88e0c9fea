// A lane of a GPU: a stream, the thread that fills it and the thread that waits for it.
//
// Note [Two threads a lane]: enqueueing takes time (a layer is a hundred kernels), so each lane has
// a thread for it. Completion is found by a second thread that sleeps on an event for each op, in
// order: a callback inside the stream would hold up what is queued behind it.
//
// Order between lanes: before an op is enqueued, its stream is made to wait for the events of the
// ops that it waits for in other device lanes (see Note [Device lanes] in executor.h). Positions
// are absolute, as the executor's: turn * ops in the lane + position.
//
// Owner: CudaDevice. Thread rule: Run from one thread at a time; StreamWaitFor from any lane's
// filling thread; Shutdown from one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/mutex.h"
#include "io/status.h"
#include "swap/lane_thread.h"
#include "swap/op_runner.h"

namespace marea {

class StreamLane {
 public:
  struct Options {
    std::string name;  // of the threads
    int gpu = 0;
    uint32_t launch_depth = 1;
    cudaStream_t stream = nullptr;  // not owned; null: the lane makes and owns one
  };
  // REQUIRES: the GPU works (ProbeGpu).
  static Result<std::unique_ptr<StreamLane>> Create(const Options& options);
  ~StreamLane();  // REQUIRES: nothing in flight

  // What an op is in its lane, and how its stream comes to wait for other lanes. `position` is
  // kNoPosition for work outside of a step.
  struct Order {
    uint64_t position;
    std::function<Status(cudaStream_t)> wait;  // empty: nothing to wait for
  };
  static constexpr uint64_t kNoPosition = UINT64_MAX;

  // On the filling thread: waits, calls `work` to enqueue, reports Launched; when the GPU is
  // through, completes. A failure completes at once. Never blocks.
  void Run(Order order, std::function<Status()> work, Completion done);

  // Makes `other` wait for everything that this lane launched through `position`. REQUIRES: the
  // executor has been told that it was.
  Status StreamWaitFor(cudaStream_t other, uint64_t position);

  cudaStream_t stream() const { return stream_; }
  void Shutdown();

 private:
  struct Launched {
    uint64_t position;
    cudaEvent_t event;
  };

  explicit StreamLane(const Options& options);
  Status Launch(const Order& order, const std::function<Status()>& work, cudaEvent_t* event);
  void Complete(const Order& order, cudaEvent_t event, const Completion& done);

  const Options options_;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;  // one for each op in flight, used in turn
  uint64_t next_event_ = 0;          // filling thread only
  Mutex mutex_;
  std::deque<Launched> launched_ GUARDED_BY(mutex_);  // not complete, oldest first
  std::unique_ptr<LaneThread> filler_;
  std::unique_ptr<LaneThread> waiter_;
};

}  // namespace marea
