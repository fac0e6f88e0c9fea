// From budgets to a plan: picks the wave size, the rings and every shard's home, so that the run
// fits, and compiles the step.
//
// Placement is by value: a byte of `weight` in RAM or VRAM saves two reads and one write a step,
// one of `gradient` a write and a read, one of a state a read and a write. VRAM is filled first,
// then RAM; what rests on NVMe is spread evenly over the blocks. Homes that the config fixes are
// hard.
//
// Pure: no allocation of arenas, no files; the same request gives the same plan. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/plan_spec.h"
#include "io/status.h"
#include "swap/chunk_table.h"
#include "swap/step_plan.h"

namespace marea {

// Where VRAM is: memory of its own, or (CPU) an arena that counts against --ram as well.
enum class VramKind : uint8_t { kDevice, kInsideRam };

// Which device runs the optimizer. kAuto: the GPU for groups that rest in VRAM whole and, where the
// states of the others are in RAM, for one layer in three, so that both finish together; the CPU
// for the rest. The bits are the same.
enum class OptimizerDevice : uint8_t { kAuto, kCpu, kGpu };

struct PlanRequest {
  const ModelShape* model = nullptr;
  Partition partition;  // budgets are this rank's
  Precision precision = Precision::kBf16;
  Precision gradient_precision = Precision::kBf16;
  uint32_t micro_count = 1;
  std::optional<uint32_t> wave_size;  // fixed by the user
  std::optional<Tier> weight_home;    // offload_param
  std::optional<Tier> state_home;     // offload_optimizer: master_low and both moments
  VramKind vram_kind = VramKind::kInsideRam;
  OptimizerDevice optimizer_device = OptimizerDevice::kAuto;
  uint64_t vram_bytes = 0;        // --vram
  uint64_t vram_fixed_bytes = 0;  // of that, what the driver and libraries take
  uint64_t ram_bytes = 0;         // --ram, the whole process
  uint64_t ram_fixed_bytes = 0;   // of that, what libraries, threads and data take
  uint64_t nvme_bytes = 0;        // all paths together; 0: no NVMe
  uint32_t nvme_paths = 0;
  uint32_t slots = 2;
};

// Bytes by tier and kind, as the summary shows them.
using TierKindBytes = std::array<std::array<uint64_t, kShardKindCount>, kTierCount>;

struct PlannedRun {
  PlanSpec spec;
  StepPlan plan;
  ChunkTable chunks;  // of the shards on NVMe
  TierKindBytes homes{};
  uint64_t workspace_bytes = 0;  // temporaries of the compute library, at most
  uint64_t vram_peak_bytes = 0;  // predicted: arena, workspace and vram_fixed_bytes
  uint64_t ram_peak_bytes = 0;   // predicted: the whole process
  uint64_t nvme_peak_bytes = 0;  // predicted: files, all slots
};

// DoesNotFit: one sentence with the budget that is too small, what is needed and what would make it
// fit. The model of the request outlives the result.
Result<PlannedRun> PlanRun(const PlanRequest& request);

}  // namespace marea
