// What a benchmark says: a table for people, JSON for programs.
//
// The JSON's keys are fixed (docs/benchmark.md). Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/machine_profile.h"
#include "src/bench/bench_session.h"
#include "src/bench/endurance.h"
#include "src/bench/fio_peer.h"

namespace marea {

struct BenchReport {
  std::vector<PathFacts> paths;
  std::vector<BenchResult> results;
  std::vector<FioComparison> comparisons;
  std::optional<BenchShape> best;  // of a sweep
  std::vector<EnduranceEstimate> endurance;
  std::optional<MachineProfile> machine;
};

// {"environment", "results", "best"}, and "comparison", "endurance" and "machine_profile" where
// there is one; ends in a newline.
std::string ReportJson(const BenchReport& report);

// The drives, one paragraph each: what they are and what marks their figures.
std::string PathsText(std::span<const PathFacts> paths);
// How bytes travel, and why not better; empty for the best mode.
std::string ModeText(const IoModeReport& mode);
// A line for each result, with a head, then what marks them, each sentence once.
std::string ResultsText(std::span<const BenchResult> results);
std::string ComparisonsText(std::span<const FioComparison> comparisons);

}  // namespace marea
