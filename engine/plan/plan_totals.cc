#include "engine/plan/plan_totals.h"

namespace marea {

PlannedLanes CountLanes(const StepPlan& plan, const StepMask& mask) {
  PlannedLanes lanes{};
  for (const Op& op : plan.ops) {
    if (!Active(op, mask)) continue;
    PlannedLane& lane = lanes[static_cast<int>(op.lane)];
    ++lane.ops_by_kind[static_cast<int>(op.kind)];
    ++lane.op_count;
    lane.bytes += TransferBytes(op);
  }
  return lanes;
}

StepMask SteadyTurn(uint32_t micro_count) {
  return {.update = true, .train = true, .eval = false, .micro_count = micro_count};
}

}  // namespace marea
