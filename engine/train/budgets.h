// The budgets of a run: what the flags say, within what the machine has.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/training_config.h"
#include "engine/train/run_options.h"
#include "io/status.h"
#include "swap/gpu_probe.h"
#include "swap/store_layout.h"

namespace marea {

struct Budgets {
  uint64_t vram_bytes = 0;
  uint64_t ram_bytes = 0;
  uint64_t nvme_bytes = 0;  // all paths together
};

struct ResolvedBudgets {
  Budgets budgets;
  std::vector<StorePath> store_paths;
  std::vector<std::string> warnings;
};

// Without flags: 80% of the smaller of cgroup limit and RAM, 90% of the GPU's free memory (on the
// CPU half of RAM is the stand-in for VRAM), no NVMe beyond what the config names. A cgroup limit
// caps --ram. Checks every NVMe path (nvme_directory.h). InvalidArgument for a path that cannot
// serve; DoesNotFit for one that is full.
Result<ResolvedBudgets> ResolveBudgets(const RunOptions& options, const TrainingConfig& config,
                                       const std::optional<GpuFacts>& gpu);

}  // namespace marea
