#include "swap/stream_lane.h"

#include <algorithm>
#include <utility>

#include "io/check.h"
#include "swap/cuda_status.h"

namespace marea {

Result<std::unique_ptr<StreamLane>> StreamLane::Create(const Options& options) {
  std::unique_ptr<StreamLane> lane(new StreamLane(options));
  if (options.stream == nullptr) {
    MAREA_RETURN_IF_ERROR(CudaStatus(
        cudaStreamCreateWithFlags(&lane->stream_, cudaStreamNonBlocking), "making a stream"));
  }
  // One more than can be in flight: an event is used again only when its op is long complete.
  lane->events_.resize(options.launch_depth + 1, nullptr);
  for (cudaEvent_t& event : lane->events_) {
    MAREA_RETURN_IF_ERROR(
        CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
                   "making an event"));
  }
  // New threads begin on GPU 0.
  const auto choose_gpu = [gpu = options.gpu] { (void)cudaSetDevice(gpu); };
  const uint32_t queue_max = options.launch_depth + 2;
  lane->filler_ = std::make_unique<LaneThread>(options.name, queue_max);
  lane->waiter_ = std::make_unique<LaneThread>(options.name + "-end", queue_max);
  lane->filler_->Post(choose_gpu);
  lane->waiter_->Post(choose_gpu);
  return lane;
}

StreamLane::StreamLane(const Options& options) : options_(options), stream_(options.stream) {}

StreamLane::~StreamLane() {
  Shutdown();
}

void StreamLane::Run(Order order, std::function<Status()> work, Completion done) {
  filler_->Post(
      [this, order = std::move(order), work = std::move(work), done = std::move(done)]() mutable {
        cudaEvent_t event;
        Status status = Launch(order, work, &event);
        if (!status.ok()) {
          done(std::move(status));
          return;
        }
        done.Launched();
        waiter_->Post([this, order = std::move(order), event, done = std::move(done)] {
          Complete(order, event, done);
        });
      });
}

Status StreamLane::Launch(const Order& order, const std::function<Status()>& work,
                          cudaEvent_t* event) {
  if (order.wait) MAREA_RETURN_IF_ERROR(order.wait(stream_));
  MAREA_RETURN_IF_ERROR(work());
  *event = events_[next_event_++ % events_.size()];
  MAREA_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(*event, stream_), "recording an event"));
  if (order.position == kNoPosition) return Status::Ok();
  MutexLock lock(mutex_);
  launched_.push_back({order.position, *event});
  return Status::Ok();
}

void StreamLane::Complete(const Order& order, cudaEvent_t event, const Completion& done) {
  Status status = CudaStatus(cudaEventSynchronize(event), "waiting for the GPU");
  if (order.position != kNoPosition) {
    MutexLock lock(mutex_);
    MAREA_CHECK(!launched_.empty() && launched_.front().position == order.position,
                "a stream completes in order");
    launched_.pop_front();
  }
  done(std::move(status));
}

Status StreamLane::StreamWaitFor(cudaStream_t other, uint64_t position) {
  MutexLock lock(mutex_);
  // The last one at or before the position; ops that the turn skipped were never launched.
  const auto after = std::find_if(launched_.begin(), launched_.end(),
                                  [&](const Launched& op) { return op.position > position; });
  if (after == launched_.begin()) return Status::Ok();  // all of them are complete
  return CudaStatus(cudaStreamWaitEvent(other, std::prev(after)->event, 0), "ordering two streams");
}

void StreamLane::Shutdown() {
  if (filler_) filler_->Shutdown();
  if (waiter_) waiter_->Shutdown();
  for (cudaEvent_t& event : events_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
    event = nullptr;
  }
  if (options_.stream == nullptr && stream_ != nullptr) {
    (void)cudaStreamDestroy(std::exchange(stream_, nullptr));
  }
}

}  // namespace marea
