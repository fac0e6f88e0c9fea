#include "engine/plan/plan_totals.h"

namespace marea {

uint64_t TransferBytes(const Op& op) {
  switch (op.kind) {
    case OpKind::kRead:
    case OpKind::kWrite:
    case OpKind::kCopyIn:
    case OpKind::kCopyOut:
      return op.accesses.empty() ? 0 : op.accesses.front().bytes;
    default:
      return 0;
  }
}

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
