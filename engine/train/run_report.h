// What a finished run says of itself, from its setup, its resources and what was measured.
//
// Thread rule: one thread, after the last step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/report/run_summary.h"
#include "engine/train/run_resources.h"
#include "engine/train/run_setup.h"

namespace marea {

// What the trainer measured of this rank.
struct RunMeasures {
  std::vector<double> step_seconds;  // of each step
  double run_seconds = 0;            // first step's start to last step's end
  SwapSnapshot lanes{};              // over that time
  uint64_t vram_peak_bytes = 0;
  uint64_t ram_peak_bytes = 0;
};

// Fills what is known of this rank: all but losses, step count and other ranks' peaks.
void FillSummary(const RunSetup& setup, RunResources& resources, const RunMeasures& measures,
                 RunSummary& summary);

// Each rank's own peaks. All ranks call it.
Status CollectRankPeaks(RankGroup& group, const RunMeasures& measures, RunSummary& summary);

}  // namespace marea
