// What a step measured: one line of metrics.jsonl. Plain values; no torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "swap/executor.h"
#include "swap/swap_stats.h"

namespace marea {

// Seconds and bytes count since the line before. Written when the step's backward has ended; the
// loss is that of the weights before this step's update.
struct StepMetrics {
  uint64_t step = 0;  // from 1
  double loss = 0;    // mean over the step's weighted tokens
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  std::string update_mode = "exact";
  uint64_t tokens = 0;
  double step_seconds = 0;
  uint64_t vram_peak_bytes = 0;
  uint64_t ram_peak_bytes = 0;
  SwapSnapshot lanes{};          // bytes and busy seconds by lane
  StallSeconds stall_seconds{};  // the compute lane's idle time, by the lane it waited for
  std::optional<double> eval_loss;
};

// One line of JSON with DESIGN's keys (docs/output-files.md), without the newline.
std::string ToJsonLine(const StepMetrics& metrics);

}  // namespace marea
