// What a finished run says of itself: summary.json and the table at the end. Plain values; no
// torch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/planner.h"
#include "swap/executor.h"
#include "swap/swap_stats.h"

namespace marea {

struct TierUse {
  uint64_t budget_bytes = 0;
  uint64_t predicted_bytes = 0;
  uint64_t peak_bytes = 0;  // measured
};

// Torch's temporaries on a GPU.
struct WorkspaceUse {
  uint64_t predicted_bytes = 0;  // by formula, with its margin
  uint64_t peak_bytes = 0;       // the most in use at once
  uint64_t reserved_bytes = 0;   // what torch took from the driver
  uint64_t retry_count = 0;      // times it ran short and had to give back
};

// What one rank took at most.
struct RankPeaks {
  uint64_t vram_bytes = 0;
  uint64_t ram_bytes = 0;
};

struct RunSummary {
  std::string model;      // as the user named it
  std::string device;     // "cpu" or the GPU's name
  std::string precision;  // "bf16" or "fp32"
  uint64_t parameters = 0;
  uint32_t world_size = 1;
  uint32_t zero_stage = 0;
  std::vector<RankPeaks> ranks;  // by rank; empty where there is one
  uint64_t tokens_per_step = 0;
  uint64_t steps = 0;
  double loss_first = 0;
  double loss_last = 0;
  std::optional<double> eval_loss_last;
  double step_seconds_median = 0;           // without step 1
  double run_seconds = 0;                   // first step's start to last step's end
  std::array<TierUse, kTierCount> tiers{};  // by Tier
  TierKindBytes placement{};
  std::optional<double> predicted_step_seconds;  // null until the planner can tell
  std::string bound_by;  // the lane that the compute lane waited for most, or "compute"
  std::string io_mode;   // "none" where nothing is on NVMe
  std::string io_mode_reason, io_mode_remedy;
  std::optional<WorkspaceUse> workspace;  // on a GPU
  SwapSnapshot lanes{};                   // totals over all steps
  StallSeconds stall_seconds{};
  uint32_t wave_size = 0;
  uint32_t micro_count = 0;
  uint64_t chunk_elements = 0;
  uint32_t threads = 0;
  std::string simd_level;
  bool interrupted = false;
};

std::string ToJson(const RunSummary& summary);   // pretty-printed
std::string ToTable(const RunSummary& summary);  // for people, ends in a newline

}  // namespace marea
