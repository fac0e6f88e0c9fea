// The flags of `marea bench`.
//
// Thread rule: pure functions, but for ReadReplayPlan, which reads a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/plan_json.h"
#include "io/block_device.h"
#include "io/status.h"
#include "src/arguments.h"
#include "src/bench/bench_session.h"

namespace marea {

// As written; an empty text was not given.
struct BenchFlags {
  std::vector<std::string> nvme, workload;
  std::string size, seconds, block_size, queue_depth;
  std::string replay, compare, require, io, give_up;
  std::string machine_profile, endurance_rating;
  bool sweep = false;
  bool all = false;
  bool json = false;
};

// `flags` outlives `set`.
void AddBenchFlags(FlagSet& set, BenchFlags& flags);

// `--nvme A B` as `--nvme A --nvme B`.
std::vector<std::string> SpreadNvmePaths(const std::vector<std::string>& words);

struct BenchRun {
  std::vector<std::string> folders;  // may be empty with `all`
  std::vector<WorkloadKind> kinds;   // empty if only a plan is replayed
  BenchShape shape;
  uint64_t file_bytes = 0;  // of each path, for all but a replay
  double seconds = 0;       // of a measurement
  bool sweep = false;
  std::string replay_path;
  bool compare_fio = false;
  std::optional<double> require_bytes_per_second;
  bool all = false;                  // the machine, too
  std::string machine_profile_path;  // where its profile goes; empty: nowhere
  std::optional<uint64_t> endurance_rating_bytes;
  std::optional<IoMode> mode;
  double give_up_seconds = 30;
  bool json = false;
};

// InvalidArgument names the flag that is missing, has no sense, or contradicts another.
Result<BenchRun> ToBenchRun(const BenchFlags& flags);

// "300MB/s", "2GiB/s", "1.5G", in bytes a second.
Result<double> ParseRate(const std::string& flag, const std::string& text);

// "600TB", "600TBW": bytes that a drive is rated to have written to it.
Result<uint64_t> ParseEnduranceRating(const std::string& flag, const std::string& text);

// A plan.json that has been proved free of races.
Result<PlanFile> ReadReplayPlan(const std::string& path);

}  // namespace marea
