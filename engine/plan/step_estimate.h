// How long a step of a plan takes on a machine: each lane's work in a steady turn over what the
// machine's profile says the lane gives in a second.
//
// A lower bound, not a simulation: every lane is taken to be busy from end to end, waits, latency,
// small kernels and the gradients' reduction take no time, and products of matrices run at the rate
// of large ones. A run that takes much longer than this waits somewhere, and its trace says where.
//
//   nvme_read, nvme_write  bytes; both at their mixed rates until one is through, the other's rest
//                          at its own rate
//   h2d, d2h               the same over PCIe; where the CPU stands in for VRAM, copies of RAM,
//                          whose bytes are read and written
//   compute                forward, recompute and backward products; updates on a GPU are left out
//   cpu                    parameters that the CPU updates
//   comm                   bytes that arrive at each rank, gathered or scattered
//
// Ranks of one node share its drives and its processor, and each has its own GPU and link. Where
// the CPU computes, compute, cpu, h2d and d2h have the same cores, so that their times add up.
//
// Pure functions; nothing is guessed: a lane whose figure the profile lacks has no time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/machine_profile.h"
#include "engine/plan/planner.h"

namespace marea {

struct EstimateRequest {
  bool on_gpu = false;  // or on the CPU
  uint32_t ranks_per_node = 1;
  std::vector<std::string> nvme_paths;  // that the plan uses
};

struct LaneTime {
  std::optional<double> seconds;  // 0 for a lane without work
  std::string reason;             // one sentence; empty exactly if there are seconds
};

struct StepEstimate {
  std::array<LaneTime, kLaneCount> lanes;  // by Lane
  double cpu_seconds = 0;   // where the CPU computes: the sum of those lanes that share its cores
  double step_seconds = 0;  // at least; of the lanes that have a time
  std::optional<Lane> bound_by;  // the slowest lane of what takes longest; none: no lane has a time
};

StepEstimate EstimateStep(const PlannedRun& planned, const MachineProfile& profile,
                          const EstimateRequest& request);

// For people, under the table of lanes: the step's time, what bounds it and what is not told.
// `origin` is the profile's file. Ends in a newline.
std::string EstimateText(const StepEstimate& estimate, const std::string& origin);

// One line: {"machine", "step_seconds_min", "bound_by", "lane_seconds", "not_told"}.
std::string EstimateJson(const StepEstimate& estimate, const std::string& origin);

}  // namespace marea
