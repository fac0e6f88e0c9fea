#include "src/bench_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/config/json_text.h"
#include "io/units.h"
#include "src/flag_values.h"
#include "swap/plan_check.h"

namespace marea {
namespace {

constexpr uint64_t kDefaultFileBytes = 4 * kGiB;
constexpr uint64_t kDefaultBlockBytes = kMiB;
constexpr uint64_t kBlockBytesMax = kGiB;
constexpr uint32_t kDefaultQueueDepth = 32;
constexpr uint64_t kQueueDepthMax = 4096;
constexpr double kDefaultSeconds = 5;
constexpr double kDefaultSweepSeconds = 1;
constexpr uint64_t kPlanBytesMax = kGiB;

// "5", "0.5", "5s": fio's users write the unit.
Result<double> ParseSeconds(const std::string& flag, std::string text) {
  const std::string whole = text;
  if (text.size() > 1 && text.back() == 's') text.pop_back();
  const Result<double> seconds = ParseNonNegative(flag, text);
  if (seconds.ok() && seconds.value() > 0 && seconds.value() <= 1e6) return seconds;
  return Status::InvalidArgument(
      fmt::format("{} {}: it takes seconds above 0, as 5 or 0.5", flag, whole));
}

Result<uint64_t> ParsePages(const std::string& flag, const std::string& text, uint64_t bytes_max) {
  const Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return bytes.status().WithContext(flag);
  if (bytes.value() == 0 || bytes.value() % kPageBytes != 0) {
    return Status::InvalidArgument(
        fmt::format("{} {}: direct I/O takes multiples of {} bytes; the nearest above is {}", flag,
                    text, kPageBytes, RoundUp(std::max<uint64_t>(bytes.value(), 1), kPageBytes)));
  }
  if (bytes.value() > bytes_max) {
    return Status::InvalidArgument(
        fmt::format("{} {}: it is at most {}", flag, text, FormatBytes(bytes_max)));
  }
  return bytes;
}

Status SetShape(const BenchFlags& flags, BenchRun& run) {
  run.shape = {kDefaultBlockBytes, kDefaultQueueDepth};
  if (!flags.block_size.empty()) {
    MAREA_ASSIGN_OR_RETURN(run.shape.block_bytes,
                           ParsePages("--block-size", flags.block_size, kBlockBytesMax));
  }
  if (!flags.queue_depth.empty()) {
    MAREA_ASSIGN_OR_RETURN(const uint64_t depth,
                           ParseCount("--queue-depth", flags.queue_depth, 1, kQueueDepthMax));
    run.shape.queue_depth = static_cast<uint32_t>(depth);
  }
  run.file_bytes = kDefaultFileBytes;
  if (!flags.size.empty()) {
    MAREA_ASSIGN_OR_RETURN(run.file_bytes,
                           ParsePages("--size", flags.size, static_cast<uint64_t>(INT64_MAX)));
  }
  return Status::Ok();
}

// Reads and writes each need room for a full queue.
Status CheckSize(const BenchFlags& flags, const BenchRun& run) {
  const uint64_t least_bytes = 2 * run.shape.block_bytes * run.shape.queue_depth;
  if (run.kinds.empty() || run.file_bytes >= least_bytes) return Status::Ok();
  return Status::InvalidArgument(fmt::format(
      "--size {} is too small for {} requests of {} in flight: give {} or more",
      flags.size.empty() ? FormatBytes(run.file_bytes) : flags.size, run.shape.queue_depth,
      FormatBytes(run.shape.block_bytes), FormatBytes(least_bytes)));
}

Status SetKinds(const BenchFlags& flags, BenchRun& run) {
  for (const std::string& list : flags.workload) {
    size_t begin = 0;
    while (begin <= list.size()) {
      const size_t end = std::min(list.find(',', begin), list.size());
      MAREA_ASSIGN_OR_RETURN(const WorkloadKind kind,
                             ParseWorkload("--workload", list.substr(begin, end - begin)));
      if (std::find(run.kinds.begin(), run.kinds.end(), kind) == run.kinds.end()) {
        run.kinds.push_back(kind);
      }
      begin = end + 1;
    }
  }
  if (!run.kinds.empty() || !flags.replay.empty()) return Status::Ok();
  run.kinds = {WorkloadKind::kRead, WorkloadKind::kWrite, WorkloadKind::kMixed};
  if (!flags.sweep && !flags.all) run.kinds.push_back(WorkloadKind::kRandomRead);
  return Status::Ok();
}

Status SetMode(const BenchFlags& flags, BenchRun& run) {
  if (flags.io.empty() || flags.io == "auto") return Status::Ok();
  if (flags.io == "io_uring") {
    run.mode = IoMode::kUringRegistered;
  } else if (flags.io == "io_uring_unregistered") {
    run.mode = IoMode::kUring;
  } else if (flags.io == "threads" || flags.io == "psync" || flags.io == "sync") {
    run.mode = IoMode::kPosix;
  } else {
    return Status::InvalidArgument(
        fmt::format("--io {}: it is auto, io_uring, io_uring_unregistered or threads", flags.io));
  }
  return Status::Ok();
}

// What --all needs and does not go with.
Status CheckAll(const BenchFlags& flags) {
  if (!flags.all && !flags.machine_profile.empty()) {
    return Status::InvalidArgument(
        "--machine-profile holds what --all measures: add --all, or leave it out");
  }
  if (flags.nvme.empty() && !flags.all) {
    return Status::InvalidArgument(
        "--nvme PATH must be given, or --all for the machine without drives (`--help` lists all "
        "flags)");
  }
  if (!flags.all) return Status::Ok();
  const char* const other = !flags.workload.empty()  ? "--workload"
                            : flags.sweep            ? "--sweep"
                            : !flags.replay.empty()  ? "--replay"
                            : !flags.compare.empty() ? "--compare"
                                                     : nullptr;
  if (other != nullptr) {
    return Status::InvalidArgument(fmt::format(
        "--all reads, writes and mixes both on each drive, and nothing else: leave out {}", other));
  }
  if (!flags.nvme.empty()) return Status::Ok();
  const char* const of_drives = !flags.require.empty()            ? "--require"
                                : !flags.endurance_rating.empty() ? "--endurance-rating"
                                                                  : nullptr;
  if (of_drives == nullptr) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("{} is about drives: add --nvme PATH, or leave it out", of_drives));
}

Status CheckContradictions(const BenchFlags& flags) {
  MAREA_RETURN_IF_ERROR(CheckAll(flags));
  if (flags.sweep && !flags.replay.empty()) {
    return Status::InvalidArgument("--sweep and --replay contradict each other: give one of them");
  }
  if (flags.sweep && !(flags.block_size.empty() && flags.queue_depth.empty())) {
    return Status::InvalidArgument(
        "--sweep chooses block size and depth itself: leave out --block-size and --queue-depth");
  }
  if (!flags.compare.empty() && flags.compare != "fio") {
    return Status::InvalidArgument(fmt::format("--compare {}: it takes fio", flags.compare));
  }
  if (!flags.compare.empty() && (flags.nvme.size() > 1 || flags.sweep || !flags.replay.empty())) {
    return Status::InvalidArgument(
        "--compare fio takes one --nvme path, and neither --sweep nor --replay");
  }
  if (flags.sweep && !flags.endurance_rating.empty()) {
    return Status::InvalidArgument(
        "--endurance-rating goes with one rate of writing, and --sweep tries many: leave out one "
        "of them");
  }
  return Status::Ok();
}

}  // namespace

Result<uint64_t> ParseEnduranceRating(const std::string& flag, const std::string& text) {
  std::string size = text;
  // Makers write TBW: total bytes written.
  const bool written = size.size() > 2 && (size.back() == 'W' || size.back() == 'w') &&
                       (size[size.size() - 2] == 'B' || size[size.size() - 2] == 'b');
  if (written) size.pop_back();
  const Result<uint64_t> bytes = ParseBytes(size);
  if (bytes.ok() && bytes.value() > 0) return bytes;
  return Status::InvalidArgument(fmt::format(
      "{} {}: it takes the bytes that a drive is rated for (TBW), as 600TB", flag, text));
}

Result<double> ParseRate(const std::string& flag, const std::string& text) {
  std::string size = text;
  if (size.size() > 2 && size.compare(size.size() - 2, 2, "/s") == 0) size.resize(size.size() - 2);
  const Result<uint64_t> bytes = ParseBytes(size);
  if (bytes.ok() && bytes.value() > 0) return static_cast<double>(bytes.value());
  return Status::InvalidArgument(
      fmt::format("{} {}: it takes a rate above 0, as 2GB/s or 300MB/s", flag, text));
}

void AddBenchFlags(FlagSet& set, BenchFlags& flags) {
  set.Texts("--nvme", flags.nvme, "PATH...",
            "a folder on each drive to measure; several are striped too");
  set.Text("--size", flags.size, "SIZE", "of the file on each path (4GiB)");
  set.Text("--seconds,--runtime", flags.seconds, "S",
           "of each measurement (5; of a sweep's 1), after a warm-up");
  set.Text("--block-size,--bs", flags.block_size, "SIZE", "of a request (1MiB)");
  set.Text("--queue-depth,--iodepth", flags.queue_depth, "N",
           "requests in flight on each path (32)");
  set.Texts("--workload,--rw", flags.workload, "NAME",
            "read, write, mixed or random_read; all of them if absent");
  set.Switch("--sweep", flags.sweep, "try block sizes and depths; print the config to use");
  set.Text("--replay", flags.replay, "PLAN", "the transfers of a step of a saved plan.json");
  set.Text("--compare", flags.compare, "fio", "five runs each of fio and marea, in turn");
  set.Text("--require", flags.require, "RATE", "exit 3 if any workload is slower, as 2GB/s");
  set.Switch("--all", flags.all,
             "RAM, optimizer, processor and GPU too; drives only where --nvme names them");
  set.Text("--machine-profile", flags.machine_profile, "FILE", "where --all leaves its figures");
  set.Text("--endurance-rating", flags.endurance_rating, "SIZE",
           "bytes that a drive may have written to it, as 600TB: how long it lasts");
  set.Text("--io,--ioengine", flags.io, "MODE",
           "auto, io_uring, io_uring_unregistered or threads (auto)");
  set.Text("--give-up", flags.give_up, "S", "end if a drive is silent for so long (30)");
  set.Switch("--json", flags.json, "JSON on stdout");
}

std::vector<std::string> SpreadNvmePaths(const std::vector<std::string>& words) {
  std::vector<std::string> spread;
  bool in_paths = false;
  size_t paths = 0;
  for (const std::string& word : words) {
    if (word.rfind("--", 0) == 0) {
      in_paths = word == "--nvme";
      paths = 0;
    } else if (in_paths && ++paths > 1) {
      spread.emplace_back("--nvme");
    }
    spread.push_back(word);
  }
  return spread;
}

Result<BenchRun> ToBenchRun(const BenchFlags& flags) {
  MAREA_RETURN_IF_ERROR(CheckContradictions(flags));
  BenchRun run;
  run.folders = flags.nvme;
  run.sweep = flags.sweep;
  run.replay_path = flags.replay;
  run.compare_fio = !flags.compare.empty();
  run.json = flags.json;
  MAREA_RETURN_IF_ERROR(SetShape(flags, run));
  MAREA_RETURN_IF_ERROR(SetKinds(flags, run));
  MAREA_RETURN_IF_ERROR(SetMode(flags, run));
  MAREA_RETURN_IF_ERROR(CheckSize(flags, run));
  run.seconds = flags.sweep ? kDefaultSweepSeconds : kDefaultSeconds;
  if (!flags.seconds.empty()) {
    MAREA_ASSIGN_OR_RETURN(run.seconds, ParseSeconds("--seconds", flags.seconds));
  }
  if (!flags.give_up.empty()) {
    MAREA_ASSIGN_OR_RETURN(run.give_up_seconds, ParseSeconds("--give-up", flags.give_up));
  }
  if (!flags.require.empty()) {
    MAREA_ASSIGN_OR_RETURN(run.require_bytes_per_second, ParseRate("--require", flags.require));
  }
  run.all = flags.all;
  run.machine_profile_path = flags.machine_profile;
  if (!flags.endurance_rating.empty()) {
    MAREA_ASSIGN_OR_RETURN(run.endurance_rating_bytes,
                           ParseEnduranceRating("--endurance-rating", flags.endurance_rating));
    const bool writes = std::count(run.kinds.begin(), run.kinds.end(), WorkloadKind::kWrite) > 0;
    if (!writes && run.replay_path.empty()) {
      return Status::InvalidArgument(
          "--endurance-rating needs a rate of writing: add write to --workload, or --replay PLAN");
    }
  }
  return run;
}

Result<PlanFile> ReadReplayPlan(const std::string& path) {
  MAREA_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kPlanBytesMax));
  MAREA_ASSIGN_OR_RETURN(PlanFile file, ParsePlan(text, path));
  const Status proved = CheckPlan(file.plan, file.micro_count);
  if (!proved.ok()) {
    return Status::InvalidArgument(
        fmt::format("--replay {}: the plan is not sound: {}", path, proved.message()));
  }
  return file;
}

}  // namespace marea
