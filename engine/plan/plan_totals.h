// What a turn of a plan does in all: ops and bytes by lane. Counted from the plan, as the swapper
// counts them while it runs. Pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "swap/step_plan.h"

namespace marea {

struct PlannedLane {
  std::array<uint32_t, kOpKindCount> ops_by_kind{};  // by OpKind
  uint64_t op_count = 0;
  uint64_t bytes = 0;  // moved by reads, writes and copies; 0 for the others
};

using PlannedLanes = std::array<PlannedLane, kLaneCount>;  // by Lane

// Of the ops that run in a turn with this mask.
PlannedLanes CountLanes(const StepPlan& plan, const StepMask& mask);

// A turn in the middle of a run: it updates, and trains all `micro_count` micro-batches.
StepMask SteadyTurn(uint32_t micro_count);

}  // namespace marea
