// One stream of a measurement: the thread that drives a device, and what it has counted.
//
// Owner: RunStreams (io_bench.h). Thread rule: as each part says.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/bench/io_bench.h"

namespace marea {

using StreamClock = std::chrono::steady_clock;

enum class StreamPhase : uint8_t { kWarmUp, kMeasure, kDrain };

// What the watcher tells all streams. A stream looks after each round of completions.
struct StreamControl {
  std::atomic<StreamPhase> phase{StreamPhase::kWarmUp};
  std::atomic<bool> end_rounds{false};  // each workload ends after its round
};

// One stream's thread and what it has counted.
class StreamRunner {
 public:
  StreamRunner(const Stream& stream, const StreamControl& control);

  // Unavailable if there is no thread to be had.
  Status Start();
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  // Any thread.
  uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }
  uint64_t write_bytes() const { return write_bytes_.load(std::memory_order_relaxed); }
  // Processor time that went into stamping and checking data.
  uint64_t data_cpu_ns() const { return data_cpu_ns_.load(std::memory_order_relaxed); }
  bool started() const { return thread_.joinable(); }  // the watcher's thread only
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  IoMode mode() const { return stream_.device->mode().mode; }
  uint64_t bytes_in_flight_max() const { return stream_.memory.size(); }
  const std::string& path() const { return stream_.files.front()->folder; }

  // Once it has ended.
  const Status& status() const { return status_; }
  const LatencyHistogram& latency() const { return latency_; }
  StreamClock::time_point ended_at() const { return ended_at_; }

 private:
  struct Slot {
    BenchTransfer transfer;
    StreamClock::time_point begun;
  };

  void Run();
  Status Loop();
  Status SubmitBatch();
  Status StampBatch();
  Status Take(std::span<const IoCompletion> done, StreamClock::time_point now);
  Status Verify(std::span<const IoCompletion> done);
  // Runs what makes or checks data, and counts its processor time apart from that of the I/O. Once
  // a round: to ask for a thread's time is a system call, which at one for each transfer and side
  // was a fifth of what the I/O itself costs.
  template <typename Work>
  Status WithData(Work work);
  std::span<std::byte> MemoryOf(size_t slot) {
    return stream_.memory.subspan(slot * slot_bytes_, slots_[slot].transfer.bytes);
  }

  const Stream stream_;
  const StreamControl& control_;
  const uint64_t slot_bytes_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  std::vector<IoRequest> batch_;
  std::vector<IoCompletion> done_;
  StreamPhase seen_ = StreamPhase::kWarmUp;
  bool rounds_end_ = false;
  uint64_t reads_ = 0;
  LatencyHistogram latency_;
  Status status_ = Status::Ok();
  StreamClock::time_point ended_at_;
  std::atomic<uint64_t> read_bytes_{0};
  std::atomic<uint64_t> write_bytes_{0};
  std::atomic<uint64_t> data_cpu_ns_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace marea
