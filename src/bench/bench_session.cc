#include "src/bench/bench_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/units.h"

namespace marea {
namespace {

// Below it a drive's own memory, or a host's, may hold the file.
constexpr uint64_t kSmallFileBytes = kGiB;
constexpr double kWarmUpShare = 0.2;
constexpr double kWarmUpSecondsMax = 1.0;

double PerSecond(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

double MillisecondsPerGb(double seconds, const Measurement& measured) {
  const double gigabytes = static_cast<double>(measured.read_bytes + measured.write_bytes) / 1e9;
  return gigabytes > 0 ? seconds * 1e3 / gigabytes : 0;
}

}  // namespace

double WarmUpSeconds(double seconds) {
  return std::min(kWarmUpSecondsMax, kWarmUpShare * seconds);
}

double BenchResult::bytes_per_second() const {
  return PerSecond(measured.read_bytes + measured.write_bytes, measured.seconds);
}

double BenchResult::read_bytes_per_second() const {
  return PerSecond(measured.read_bytes, measured.seconds);
}

double BenchResult::write_bytes_per_second() const {
  return PerSecond(measured.write_bytes, measured.seconds);
}

double BenchResult::cpu_core_ms_per_gb() const {
  return MillisecondsPerGb(measured.io_cpu_seconds, measured);
}

double BenchResult::data_core_ms_per_gb() const {
  return MillisecondsPerGb(measured.data_cpu_seconds, measured);
}

// What one measurement drives: its devices and workloads, and which paths they use.
struct BenchSession::Rig {
  std::vector<size_t> paths;
  std::vector<std::unique_ptr<BlockDevice>> devices;
  std::vector<std::unique_ptr<Workload>> workloads;
  std::vector<Stream> streams;
};

BenchSession::BenchSession(const BenchOptions& options, RunWatch watch, Announce announce)
    : options_(options), watch_(std::move(watch)), announce_(std::move(announce)) {
  arenas_.resize(options_.folders.size());
}

BenchSession::~BenchSession() = default;

Result<std::unique_ptr<BenchSession>> BenchSession::Open(const BenchOptions& options,
                                                         const BenchShape& shape, RunWatch watch,
                                                         Announce announce) {
  std::unique_ptr<BenchSession> session(
      new BenchSession(options, std::move(watch), std::move(announce)));
  MAREA_ASSIGN_OR_RETURN(session->facts_, CheckPaths(options.folders, options.file_bytes));
  MAREA_RETURN_IF_ERROR(session->MakeFiles());
  MAREA_RETURN_IF_ERROR(session->Refill(shape));
  for (size_t i = 0; i < session->files_.size(); ++i) {
    PathFacts& facts = session->facts_[i];
    for (std::string& warning :
         ExtentWarnings(session->fd(i), facts.folder, session->file_bytes(i))) {
      facts.warnings.push_back(std::move(warning));
    }
  }
  return session;
}

Status BenchSession::MakeFiles() {
  DataFileOptions file_options;
  file_options.first_write = FirstWrite::kByOwner;
  for (size_t i = 0; i < options_.folders.size(); ++i) {
    const std::string& folder = options_.folders[i];
    const std::string path = fmt::format("{}/.marea-bench-{}", folder, ::getpid());
    MAREA_ASSIGN_OR_RETURN(DataFile file,
                           DataFile::Create(path, options_.file_bytes[i], file_options));
    MAREA_RETURN_IF_ERROR(file.Unlink());
    files_.push_back(std::unique_ptr<BenchFile>(new BenchFile{
        folder, std::move(file), PageStamps(static_cast<uint32_t>(i), options_.file_bytes[i])}));
  }
  return Status::Ok();
}

Result<std::unique_ptr<BlockDevice>> BenchSession::MakeDevice(std::span<const size_t> paths,
                                                              std::span<std::byte> memory,
                                                              const BenchShape& shape,
                                                              size_t capacity) {
  std::vector<DeviceFile> files;
  for (const size_t path : paths) files.push_back({fd(path), files_[path]->folder});
  const std::span<std::byte> buffers[] = {memory};
  BlockDeviceOptions options;
  options.queue_depth = shape.queue_depth;
  options.request_bytes = shape.block_bytes;
  options.capacity = capacity;
  options.silence_seconds_max = watch_.give_up_seconds;
  options.mode = options_.mode;
  return MakeBlockDevice(files, buffers, options);
}

Result<std::span<std::byte>> BenchSession::Memory(size_t index, uint64_t bytes) {
  std::optional<PinnedArena>& arena = arenas_[index];
  if (!arena.has_value() || arena->bytes().size() < bytes) {
    arena.reset();
    ArenaOptions options;
    options.bytes = bytes;
    options.numa_node = facts_[index].details.numa_node;
    Result<PinnedArena> made = PinnedArena::Create(options);
    if (!made.ok()) return made.status();
    arena.emplace(std::move(made).value());
    FillRandomPages(arena->bytes(), index + 1);
  }
  return arena->bytes().first(bytes);
}

Status BenchSession::AddPath(size_t path, WorkloadKind kind, const BenchShape& shape,
                             VerifyDepth verify, Rig* rig) {
  rig->workloads.push_back(MakeRounds(kind, {.file = 0,
                                             .file_bytes = file_bytes(path),
                                             .block_bytes = shape.block_bytes,
                                             .seed = path + 1}));
  Workload* const workload = rig->workloads.back().get();
  MAREA_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                         Memory(path, workload->bytes_max() * shape.queue_depth));
  const size_t paths[] = {path};
  MAREA_ASSIGN_OR_RETURN(std::unique_ptr<BlockDevice> device,
                         MakeDevice(paths, memory, shape, shape.queue_depth));
  rig->paths.push_back(path);
  rig->streams.push_back({.device = device.get(),
                          .files = {files_[path].get()},
                          .workload = workload,
                          .memory = memory,
                          .verify = verify,
                          .numa_node = facts_[path].details.numa_node});
  rig->devices.push_back(std::move(device));
  return Status::Ok();
}

Result<BenchResult> BenchSession::Measure(WorkloadKind kind, const BenchShape& shape,
                                          std::optional<size_t> only_path, double seconds) {
  Rig rig;
  for (size_t path = 0; path < files_.size(); ++path) {
    if (only_path.has_value() && *only_path != path) continue;
    MAREA_RETURN_IF_ERROR(AddPath(path, kind, shape, VerifyDepth::kStamps, &rig));
  }
  RunLimit limit;
  limit.seconds = seconds;
  limit.warm_up_seconds = WarmUpSeconds(seconds);
  announce_(fmt::format("{} {} x {}{}", WorkloadName(kind), FormatBytes(shape.block_bytes),
                        shape.queue_depth,
                        files_.size() == 1      ? ""
                        : only_path.has_value() ? ", " + files_[*only_path]->folder
                                                : ", all paths"),
            0);
  return Run(kind, shape, limit, &rig);
}

Result<BenchResult> BenchSession::MeasureReplay(const Replay& replay, const BenchShape& shape) {
  Rig rig;
  for (size_t path = 0; path < files_.size(); ++path) rig.paths.push_back(path);
  rig.workloads.push_back(replay.MakeWorkload());
  const ReplayNeeds& needs = replay.needs();
  MAREA_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                         Memory(0, needs.transfer_bytes_max * needs.in_flight_max));
  MAREA_ASSIGN_OR_RETURN(std::unique_ptr<BlockDevice> device,
                         MakeDevice(rig.paths, memory, shape, needs.in_flight_max));
  Stream stream;
  stream.device = device.get();
  for (const auto& file : files_) stream.files.push_back(file.get());
  stream.workload = rig.workloads.back().get();
  stream.memory = memory;
  stream.numa_node = facts_.front().details.numa_node;
  rig.streams.push_back(std::move(stream));
  rig.devices.push_back(std::move(device));
  RunLimit limit;
  limit.seconds = options_.seconds;
  limit.whole_rounds = true;
  announce_("replay", 0);
  return Run(WorkloadKind::kReplay, shape, limit, &rig);
}

Result<BenchResult> BenchSession::Run(WorkloadKind kind, const BenchShape& shape,
                                      const RunLimit& limit, Rig* rig) {
  std::vector<std::optional<DriveTraffic>> before;
  for (const size_t path : rig->paths) {
    before.push_back(ReadDriveTraffic(facts_[path].details.drive.device));
  }
  MAREA_ASSIGN_OR_RETURN(Measurement measured, RunStreams(rig->streams, limit, watch_));
  BenchResult result{.kind = kind,
                     .paths = {},
                     .shape = shape,
                     .measured = std::move(measured),
                     .mode = rig->devices.front()->mode(),
                     .link_bytes_per_second = 0,
                     .warnings = {}};
  bool links_known = true;
  for (const size_t path : rig->paths) {
    result.paths.push_back(facts_[path].folder);
    const std::optional<PcieLink>& link = facts_[path].details.link;
    links_known = links_known && link.has_value();
    if (link.has_value()) result.link_bytes_per_second += link->bytes_per_second;
  }
  if (!links_known) result.link_bytes_per_second = 0;
  AddWarnings(*rig, before, &result);
  return result;
}

void BenchSession::AddWarnings(const Rig& rig,
                               const std::vector<std::optional<DriveTraffic>>& before,
                               BenchResult* result) const {
  for (size_t i = 0; i < rig.paths.size(); ++i) {
    const PathFacts& facts = facts_[rig.paths[i]];
    if (file_bytes(rig.paths[i]) < kSmallFileBytes) {
      result->warnings.push_back(fmt::format(
          "the file of {} is small ({}): a drive's own cache may hold it; give --size "
          "{} or more",
          facts.folder, FormatBytes(file_bytes(rig.paths[i])), FormatBytes(kSmallFileBytes)));
    }
    // A device that serves several paths does not say what it moved on each.
    const std::optional<DriveTraffic> after = ReadDriveTraffic(facts.details.drive.device);
    if (!before[i].has_value() || !after.has_value() || rig.devices.size() != rig.paths.size()) {
      continue;
    }
    const IoCounters& own = rig.devices[i]->counters();
    for (std::string& warning : TrafficWarnings({.device = facts.details.drive.device,
                                .drive = {after->read_bytes - before[i]->read_bytes,
                                          after->write_bytes - before[i]->write_bytes},
                                .own = {own.read_bytes, own.write_bytes}})) {
      result->warnings.push_back(std::move(warning));
    }
  }
  if (result->link_bytes_per_second > 0 &&
      result->bytes_per_second() > result->link_bytes_per_second) {
    result->warnings.push_back(fmt::format("{} is more than the link carries: a cache answered",
                                           FormatRate(result->bytes_per_second())));
  }
  if (result->measured.kernel_workers > 0) {
    result->warnings.push_back(fmt::format(
        "the kernel ran {} worker threads for io_uring, because the file system or drive could not "
        "take requests at once: more processor time for each byte",
        result->measured.kernel_workers));
  }
  if (result->kind == WorkloadKind::kWrite) {
    std::string cliff = CliffWarning(result->measured.second_bytes);
    if (!cliff.empty()) result->warnings.push_back(std::move(cliff));
  }
}

Status BenchSession::WholePass(WorkloadKind kind, const BenchShape& shape, const char* what) {
  Rig rig;
  uint64_t bytes = 0;
  for (size_t path = 0; path < files_.size(); ++path) {
    MAREA_RETURN_IF_ERROR(AddPath(path, kind, shape, VerifyDepth::kBodies, &rig));
    rig.workloads.back()->EndAfterRound();
    bytes += file_bytes(path);
  }
  announce_(what, bytes);
  const Result<Measurement> done = RunStreams(rig.streams, RunLimit{}, watch_);
  if (!done.ok()) return done.status();
  return Status::Ok();
}

Status BenchSession::Refill(const BenchShape& shape) {
  MAREA_RETURN_IF_ERROR(WholePass(WorkloadKind::kWrite, shape, "writing the file"));
  for (const auto& file : files_) MAREA_RETURN_IF_ERROR(file->file.Sync());
  return Status::Ok();
}

Status BenchSession::VerifyAll(const BenchShape& shape) {
  return WholePass(WorkloadKind::kRead, shape, "verifying every byte");
}

}  // namespace marea
