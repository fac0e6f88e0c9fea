// Micro-benchmarks of io: what a request costs, what an arena costs, and what the drive gives in
// each mode, at 1 MiB x 32, the shape that fio is run with beside it:
//
//   fio --name=x --filename=FILE --size=1G --bs=1M --iodepth=32 --direct=1 --ioengine=io_uring
//       --rw=read|write --time_based --runtime=3
//
// The file is written once before it is measured, and what is read is compared with what was
// written before any figure is taken. MAREA_BENCH_DIR names the folder (default: the current one);
// it must be on a drive.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "bench/bench_arena.h"
#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/drive_info.h"
#include "io/memory_limits.h"
#include "io/nvme_directory.h"
#include "io/topology.h"
#include "io/transfer_set.h"
#include "io/units.h"

namespace marea {
namespace {

constexpr uint64_t kFileBytes = kGiB;
constexpr uint64_t kRequestBytes = kMiB;
constexpr uint32_t kQueueDepth = 32;

std::string BenchPath() {
  const char* const folder = std::getenv("MAREA_BENCH_DIR");
  return std::string(folder == nullptr ? "." : folder) + "/marea-io-bench.data";
}

// One file, one arena and one device, kept between benchmarks of a mode.
class Drive {
 public:
  explicit Drive(IoMode mode)
      : file_(DataFile::Create(BenchPath(), kFileBytes).value()),
        arena_(MakeArena(kQueueDepth * kRequestBytes)) {
    const std::array files = {DeviceFile{file_.fd(), file_.path()}};
    const std::array buffers = {arena_.bytes()};
    BlockDeviceOptions options;
    options.queue_depth = kQueueDepth;
    options.request_bytes = kRequestBytes;
    options.mode = mode;
    auto made = MakeBlockDevice(files, buffers, options);
    if (made.ok()) {
      device_ = std::move(made).value();
    } else {
      why_ = made.status().message();
    }
  }
  ~Drive() {
    device_.reset();
    static_cast<void>(file_.Unlink());
  }

  BlockDevice* device() { return device_.get(); }
  const std::string& why() const { return why_; }

  IoRequest Request(IoDirection direction, uint64_t slot, uint64_t offset) {
    return {direction,     0,   offset, arena_.bytes().data() + slot * kRequestBytes,
            kRequestBytes, slot};
  }

  // "" if what is read is what was written.
  std::string Verify() {
    std::byte* const data = arena_.bytes().data();
    for (uint64_t i = 0; i < kRequestBytes; ++i) data[i] = static_cast<std::byte>(i / 509);
    IoRequest request = Request(IoDirection::kWrite, 0, 5 * kRequestBytes);
    std::array done = {IoCompletion{0, Status::Ok()}};
    for (const IoDirection direction : {IoDirection::kWrite, IoDirection::kRead}) {
      request.direction = direction;
      const Status submitted = device_->Submit(std::span(&request, 1));
      if (!submitted.ok()) return submitted.message();
      while (device_->Reap(done, ReapWait::kUntilOne) == 0) {
      }
      if (!done[0].status.ok()) return done[0].status.message();
      if (direction == IoDirection::kWrite) std::memset(data, 0, kRequestBytes);
    }
    for (uint64_t i = 0; i < kRequestBytes; ++i) {
      if (data[i] != static_cast<std::byte>(i / 509)) return "wrong bytes";
    }
    return "";
  }

 private:
  DataFile file_;
  PinnedArena arena_;
  std::unique_ptr<BlockDevice> device_;
  std::string why_;
};

// Reads or writes the file from end to end, again and again, with kQueueDepth requests in flight.
void BM_Bandwidth(benchmark::State& state, IoMode mode, IoDirection direction) {
  Drive drive(mode);
  if (drive.device() == nullptr) {
    state.SkipWithError(drive.why().c_str());
    return;
  }
  if (const std::string wrong = drive.Verify(); !wrong.empty()) {
    state.SkipWithError(wrong.c_str());
    return;
  }
  BlockDevice& device = *drive.device();
  std::vector<IoCompletion> done(kQueueDepth, IoCompletion{0, Status::Ok()});
  const uint64_t before = device.counters().read_bytes + device.counters().write_bytes;
  for (auto _ : state) {
    uint64_t next = 0;
    for (uint64_t slot = 0; slot < kQueueDepth; ++slot, next += kRequestBytes) {
      const IoRequest request = drive.Request(direction, slot, next);
      if (!device.Submit(std::span(&request, 1)).ok()) state.SkipWithError("submit");
    }
    while (device.in_flight() > 0) {
      const size_t count = device.Reap(done, ReapWait::kUntilOne);
      for (size_t i = 0; i < count; ++i) {
        if (!done[i].status.ok()) state.SkipWithError(done[i].status.message().c_str());
        if (next == kFileBytes) continue;
        const IoRequest request = drive.Request(direction, done[i].tag, next);
        if (!device.Submit(std::span(&request, 1)).ok()) state.SkipWithError("submit");
        next += kRequestBytes;
      }
    }
  }
  const uint64_t bytes = device.counters().read_bytes + device.counters().write_bytes - before;
  state.counters["bytes_per_second"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsRate);
}

// The cost of one request of a page through submit and reap, one at a time: latency of the drive
// included (wall time); processor time is what the software costs.
void BM_SubmitReapPage(benchmark::State& state, IoMode mode) {
  Drive drive(mode);
  if (drive.device() == nullptr) {
    state.SkipWithError(drive.why().c_str());
    return;
  }
  std::array done = {IoCompletion{0, Status::Ok()}};
  uint64_t page = 0;
  for (auto _ : state) {
    IoRequest request = drive.Request(IoDirection::kRead, 0, page * kPageBytes);
    request.bytes = kPageBytes;
    page = (page + 7919) % (kFileBytes / kPageBytes);
    if (!drive.device()->Submit(std::span(&request, 1)).ok()) state.SkipWithError("submit");
    while (drive.device()->Reap(done, ReapWait::kUntilOne) == 0) {
    }
    if (!done[0].status.ok()) state.SkipWithError(done[0].status.message().c_str());
  }
}

// The bookkeeping alone: one request of one piece through the transfer set.
void BM_TransferSet(benchmark::State& state) {
  TransferSet transfers(BlockDeviceOptions{}, {"bench"});
  std::array done = {IoCompletion{0, Status::Ok()}};
  const IoRequest request = {IoDirection::kRead, 0, 0, reinterpret_cast<std::byte*>(kGiB),
                             kRequestBytes,      1};
  TransferSet::Piece piece;
  for (auto _ : state) {
    transfers.Add(request);
    while (transfers.Next(&piece)) transfers.Finish(piece.token, kRequestBytes);
    benchmark::DoNotOptimize(transfers.TakeFinished(done));
  }
}

void BM_ArenaCreate(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const Result<MemoryLimits> memory = ReadMemoryLimits();
  if (!memory.ok() || memory.value().available_bytes < 2 * bytes) {
    state.SkipWithError("this machine has not twice the arena's bytes to spare");
    return;
  }
  for (auto _ : state) {
    PinnedArena arena = MakeArena(bytes);
    benchmark::DoNotOptimize(arena.bytes().data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

void RegisterDevices() {
  struct Named {
    IoMode mode;
    const char* name;
  };
  for (const Named& named : {Named{IoMode::kUringRegistered, "uring_registered"},
                             Named{IoMode::kUring, "uring"}, Named{IoMode::kPosix, "posix"}}) {
    for (const IoDirection direction : {IoDirection::kRead, IoDirection::kWrite}) {
      const char* const word = direction == IoDirection::kRead ? "read" : "write";
      benchmark::RegisterBenchmark(fmt::format("BM_Bandwidth/{}/{}", named.name, word).c_str(),
                                   [named, direction](benchmark::State& state) {
                                     BM_Bandwidth(state, named.mode, direction);
                                   })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark(
        fmt::format("BM_SubmitReapPage/{}", named.name).c_str(),
        [named](benchmark::State& state) { BM_SubmitReapPage(state, named.mode); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

BENCHMARK(BM_TransferSet);
BENCHMARK(BM_ArenaCreate)
    ->Arg(256 << 20)
    ->Arg(1 << 30)
    ->Arg(int64_t{8} << 30)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void PrintMachine() {
  const std::string path = BenchPath();
  const std::string folder = path.substr(0, path.rfind('/'));
  const Result<DirectoryReport> report = CheckNvmeDirectory(folder);
  const Result<Topology> topology = ReadTopology();
  const Result<DriveInfo> drive = FindDrive(folder);
  if (report.ok() && topology.ok() && drive.ok()) {
    fmt::print(stderr, "{}, {} threads, Linux {}; {} on {} {}, {} free\n",
               topology.value().cpu_model, topology.value().thread_count, KernelVersion(),
               report.value().file_system, drive.value().device, drive.value().model,
               FormatBytes(report.value().free_bytes));
    for (const std::string& warning : report.value().warnings) {
      fmt::print(stderr, "warning: {}\n", warning);
    }
  } else if (!report.ok()) {
    fmt::print(stderr, "{}\n", report.status().message());
    std::exit(ExitCode(report.status().code()));
  }
}

}  // namespace
}  // namespace marea

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  marea::PrintMachine();
  marea::RegisterDevices();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
