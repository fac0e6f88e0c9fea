#include "src/bench/io_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "io/check.h"
#include "src/bench/stopped.h"
#include "src/bench/stream_runner.h"

namespace marea {
namespace {

using Clock = StreamClock;
using Phase = StreamPhase;

constexpr std::chrono::milliseconds kTick(20);

double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double ProcessCpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

uint32_t CountKernelWorkers() {
  uint32_t count = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.rfind("iou-wrk", 0) == 0) ++count;
  }
  return count;
}

// What all streams had moved at one moment.
struct Snapshot {
  Clock::time_point at;
  double cpu_seconds = 0;
  double data_cpu_seconds = 0;
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
  std::vector<uint64_t> stream_bytes;

  uint64_t bytes() const { return read_bytes + write_bytes; }
};

// The calling thread's part.
class Watcher {
 public:
  Watcher(std::span<Stream> streams, const RunLimit& limit, const RunWatch& watch)
      : limit_(limit), watch_(watch) {
    for (const Stream& stream : streams) {
      runners_.push_back(std::make_unique<StreamRunner>(stream, control_));
    }
    heard_.resize(runners_.size());
  }

  Result<Measurement> Run() {
    const bool window = limit_.seconds > 0 && !limit_.whole_rounds;
    if (!window) control_.phase = Phase::kMeasure;
    Snapshot from = Take();
    start_ = from.at;
    for (Heard& heard : heard_) heard.at = start_;
    for (const auto& runner : runners_) {
      const Status started = runner->Start();
      if (!started.ok()) return Drain(started);
    }
    MAREA_RETURN_IF_ERROR(window ? WaitUntil(limit_.warm_up_seconds) : Status::Ok());
    if (window) {
      from = Take();
      control_.phase = Phase::kMeasure;
      slice_ = from.bytes();
      slices_from_ = from.at;
      MAREA_RETURN_IF_ERROR(WaitUntil(limit_.warm_up_seconds + limit_.seconds));
      MAREA_RETURN_IF_ERROR(WaitForEachQueue(from));
    } else {
      slices_from_ = start_;
      MAREA_RETURN_IF_ERROR(WaitForEnd());
    }
    Snapshot to = Take();
    kernel_workers_ = CountKernelWorkers();
    MAREA_RETURN_IF_ERROR(Drain(Status::Ok()));
    if (!window) {  // the streams' own clocks, not the watcher's ticks
      to.at = start_;
      for (const auto& runner : runners_) to.at = std::max(to.at, runner->ended_at());
    }
    return Difference(from, to);
  }

 private:
  // When a stream's count last moved.
  struct Heard {
    uint64_t bytes = 0;
    Clock::time_point at;
  };

  Snapshot Take() const {
    Snapshot snapshot{.at = Clock::now(), .cpu_seconds = ProcessCpuSeconds(), .stream_bytes = {}};
    for (const auto& runner : runners_) {
      const uint64_t read = runner->read_bytes();
      const uint64_t write = runner->write_bytes();
      snapshot.read_bytes += read;
      snapshot.write_bytes += write;
      snapshot.data_cpu_seconds += static_cast<double>(runner->data_cpu_ns()) * 1e-9;
      snapshot.stream_bytes.push_back(read + write);
    }
    return snapshot;
  }

  bool AllEnded() const {
    return std::all_of(runners_.begin(), runners_.end(),
                       [](const auto& runner) { return runner->ended(); });
  }

  // Until `seconds` after the start.
  Status WaitUntil(double seconds) {
    const Clock::time_point end = start_ + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(seconds));
    while (Clock::now() < end) {
      std::this_thread::sleep_until(std::min(end, Clock::now() + kTick));
      MAREA_RETURN_IF_ERROR(Look());
    }
    return Status::Ok();
  }

  // Until every stream has moved, since then, what it keeps in flight.
  Status WaitForEachQueue(const Snapshot& from) {
    const auto moved = [&](size_t i, const Snapshot& now) {
      return now.stream_bytes[i] - from.stream_bytes[i] >= runners_[i]->bytes_in_flight_max();
    };
    for (size_t i = 0; i < runners_.size(); ++i) {
      while (!runners_[i]->ended() && !moved(i, Take())) {
        std::this_thread::sleep_for(kTick);
        MAREA_RETURN_IF_ERROR(Look());
      }
    }
    return Status::Ok();
  }

  Status WaitForEnd() {
    bool told = limit_.seconds <= 0;
    while (!AllEnded()) {
      std::this_thread::sleep_for(kTick);
      MAREA_RETURN_IF_ERROR(Look());
      if (told || SecondsBetween(start_, Clock::now()) < limit_.seconds) continue;
      told = true;
      control_.end_rounds = true;
    }
    return Status::Ok();
  }

  // One tick: progress, a stop, a failure, a device that is silent.
  Status Look() {
    const Clock::time_point now = Clock::now();
    const Snapshot snapshot = Take();
    if (watch_.progress && SecondsBetween(shown_at_, now) >= 0.1) {
      const double seconds = SecondsBetween(start_, now);
      watch_.progress({seconds, snapshot.bytes(),
                       seconds > 0 ? static_cast<double>(snapshot.bytes()) / seconds : 0});
      shown_at_ = now;
    }
    if (control_.phase == Phase::kMeasure && SecondsBetween(slices_from_, now) >= 1.0) {
      second_bytes_.push_back(snapshot.bytes() - slice_);
      slice_ = snapshot.bytes();
      slices_from_ += std::chrono::seconds(1);
    }
    CheckSilence(snapshot, now);
    if (watch_.stop != nullptr && watch_.stop->load()) {
      return Drain(Stopped());
    }
    for (const auto& runner : runners_) {
      if (runner->ended() && !runner->status().ok()) return Drain(Status::Ok());
    }
    return Status::Ok();
  }

  // A ring breaks by itself when its drive is silent (BlockDeviceOptions); a thread in pread or
  // pwrite cannot. So a ring gets a little longer, and the end of the process is the last resort.
  void CheckSilence(const Snapshot& snapshot, Clock::time_point now) {
    constexpr double kRingSeconds = 5;
    for (size_t i = 0; i < runners_.size(); ++i) {
      const bool ring = runners_[i]->mode() != IoMode::kPosix;
      const double limit = watch_.give_up_seconds + (ring ? kRingSeconds : 0);
      if (snapshot.stream_bytes[i] != heard_[i].bytes || runners_[i]->ended()) {
        heard_[i] = {snapshot.stream_bytes[i], now};
      } else if (SecondsBetween(heard_[i].at, now) > limit) {
        watch_.on_stall(Status::Failed(
            fmt::format("{}: the drive has not answered for {:.3g} seconds (`dmesg` may say why)",
                        runners_[i]->path(), limit)));
        MAREA_CHECK(false, "on_stall returned");
      }
    }
  }

  // Lets every stream finish what is in flight. The first failure of a stream goes before `status`.
  Status Drain(Status status) {
    control_.phase = Phase::kDrain;
    while (!AllStartedEnded()) {
      std::this_thread::sleep_for(kTick / 4);
      CheckSilence(Take(), Clock::now());
    }
    for (const auto& runner : runners_) runner->Join();
    for (const auto& runner : runners_) {
      if (!runner->status().ok()) return runner->status();
    }
    return status;
  }

  bool AllStartedEnded() const {
    return std::all_of(runners_.begin(), runners_.end(),
                       [](const auto& runner) { return runner->ended() || !runner->started(); });
  }

  Measurement Difference(const Snapshot& from, const Snapshot& to) const {
    Measurement measurement;
    measurement.seconds = SecondsBetween(from.at, to.at);
    measurement.data_cpu_seconds = to.data_cpu_seconds - from.data_cpu_seconds;
    measurement.io_cpu_seconds =
        std::max(0.0, to.cpu_seconds - from.cpu_seconds - measurement.data_cpu_seconds);
    measurement.read_bytes = to.read_bytes - from.read_bytes;
    measurement.write_bytes = to.write_bytes - from.write_bytes;
    for (size_t i = 0; i < runners_.size(); ++i) {
      measurement.stream_bytes.push_back(to.stream_bytes[i] - from.stream_bytes[i]);
      measurement.latency.Merge(runners_[i]->latency());
    }
    measurement.second_bytes = second_bytes_;
    measurement.kernel_workers = kernel_workers_;
    return measurement;
  }

  const RunLimit limit_;
  const RunWatch& watch_;
  StreamControl control_;
  std::vector<std::unique_ptr<StreamRunner>> runners_;
  std::vector<Heard> heard_;
  Clock::time_point start_;
  Clock::time_point shown_at_;
  Clock::time_point slices_from_;
  uint64_t slice_ = 0;
  std::vector<uint64_t> second_bytes_;
  uint32_t kernel_workers_ = 0;
};

}  // namespace

Result<Measurement> RunStreams(std::span<Stream> streams, const RunLimit& limit,
                               const RunWatch& watch) {
  MAREA_CHECK(!streams.empty(), "nothing to measure");
  return Watcher(streams, limit, watch).Run();
}

}  // namespace marea
