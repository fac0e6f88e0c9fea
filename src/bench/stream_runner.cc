#include "src/bench/stream_runner.h"

#include <pthread.h>
#include <time.h>

#include <optional>
#include <system_error>

#include "io/check.h"
#include "io/topology.h"

namespace marea {
namespace {

constexpr uint64_t kWholeVerifyEvery = 64;

uint64_t ThreadCpuNs() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

StreamRunner::StreamRunner(const Stream& stream, const StreamControl& control)
    : stream_(stream), control_(control), slot_bytes_(stream.workload->bytes_max()) {
  const size_t slots = stream.memory.size() / slot_bytes_;
  MAREA_CHECK(slots > 0 && slots <= stream.device->capacity(), "no room for a transfer");
  slots_.resize(slots);
  for (size_t i = slots; i-- > 0;) free_.push_back(i);
  batch_.reserve(slots);
  done_.resize(slots, IoCompletion{0, Status::Ok()});
}

Status StreamRunner::Start() {
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return Status::Errno(ErrorCode::kUnavailable, "a thread cannot be started",
                         error.code().value());
  }
  pthread_setname_np(thread_.native_handle(), "marea-bench");
  return Status::Ok();
}

void StreamRunner::Run() {
  // Without it memory is only less local.
  if (stream_.numa_node >= 0) static_cast<void>(BindThisThreadToNode(stream_.numa_node));
  status_ = Loop();
  // After a failure the kernel may still use the memory of others in flight.
  while (!status_.ok() && stream_.device->in_flight() > 0) {
    static_cast<void>(stream_.device->Reap(done_, ReapWait::kUntilOne));
  }
  ended_at_ = StreamClock::now();
  ended_.store(true, std::memory_order_release);
}

Status StreamRunner::Loop() {
  while (true) {
    const StreamPhase phase = control_.phase.load(std::memory_order_relaxed);
    if (phase == StreamPhase::kMeasure && seen_ != phase) latency_.Clear();
    seen_ = phase;
    if (control_.end_rounds.load(std::memory_order_relaxed) && !rounds_end_) {
      rounds_end_ = true;
      stream_.workload->EndAfterRound();
    }
    if (phase != StreamPhase::kDrain) MAREA_RETURN_IF_ERROR(SubmitBatch());
    if (stream_.device->in_flight() == 0) {
      if (phase == StreamPhase::kDrain || stream_.workload->ended()) return Status::Ok();
      return Status::Failed("the transfers of the plan wait for each other for ever");
    }
    const size_t count = stream_.device->Reap(done_, ReapWait::kUntilOne);
    const StreamClock::time_point now = StreamClock::now();
    MAREA_RETURN_IF_ERROR(Take(std::span(done_).first(count), now));
  }
}

template <typename Work>
Status StreamRunner::WithData(Work work) {
  const uint64_t begin = ThreadCpuNs();
  Status status = work();
  data_cpu_ns_.fetch_add(ThreadCpuNs() - begin, std::memory_order_relaxed);
  return status;
}

Status StreamRunner::SubmitBatch() {
  batch_.clear();
  bool writes = false;
  const StreamClock::time_point now = StreamClock::now();
  while (!free_.empty()) {
    const std::optional<BenchTransfer> next = stream_.workload->Next();
    if (!next.has_value()) break;
    const size_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = {*next, now};
    batch_.push_back(
        {next->direction, next->file, next->offset, MemoryOf(slot).data(), next->bytes, slot});
    writes = writes || next->direction == IoDirection::kWrite;
  }
  if (writes) MAREA_RETURN_IF_ERROR(WithData([this] { return StampBatch(); }));
  return batch_.empty() ? Status::Ok() : stream_.device->Submit(batch_);
}

Status StreamRunner::StampBatch() {
  for (const IoRequest& request : batch_) {
    if (request.direction != IoDirection::kWrite) continue;
    stream_.files[request.file]->stamps.Stamp(MemoryOf(request.tag), request.offset);
  }
  return Status::Ok();
}

Status StreamRunner::Take(std::span<const IoCompletion> done, StreamClock::time_point now) {
  bool reads = false;
  for (const IoCompletion& completion : done) {
    MAREA_RETURN_IF_ERROR(completion.status);
    reads = reads || slots_[completion.tag].transfer.direction == IoDirection::kRead;
  }
  if (reads) MAREA_RETURN_IF_ERROR(WithData([&] { return Verify(done); }));
  for (const IoCompletion& completion : done) {
    const size_t slot = completion.tag;
    const BenchTransfer& transfer = slots_[slot].transfer;
    latency_.Add(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - slots_[slot].begun).count()));
    const bool read = transfer.direction == IoDirection::kRead;
    (read ? read_bytes_ : write_bytes_).fetch_add(transfer.bytes, std::memory_order_relaxed);
    stream_.workload->Done(transfer);
    free_.push_back(slot);
  }
  return Status::Ok();
}

Status StreamRunner::Verify(std::span<const IoCompletion> done) {
  for (const IoCompletion& completion : done) {
    const BenchTransfer& transfer = slots_[completion.tag].transfer;
    if (transfer.direction != IoDirection::kRead) continue;
    const bool whole = stream_.verify == VerifyDepth::kBodies || ++reads_ % kWholeVerifyEvery == 0;
    const BenchFile& file = *stream_.files[transfer.file];
    MAREA_RETURN_IF_ERROR(file.stamps.Verify(MemoryOf(completion.tag), transfer.offset,
                                             whole ? VerifyDepth::kBodies : VerifyDepth::kStamps,
                                             file.file.path()));
  }
  return Status::Ok();
}

}  // namespace marea
