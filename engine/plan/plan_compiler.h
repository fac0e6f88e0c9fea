// Compiles a model, a placement and a way of cutting up the step into a step plan.
//
// The program it emits, once a turn, for each wave of micro-batches:
//
//   for each block but the last   [update the block's groups, first wave only] weights in; forward
//   last block                    the same; forward and backward back to back
//   for each block backwards      weights in again; backward; in the last wave: reduce, gradient
//   out at the end                    the global norm and the clipping coefficient
//
// Updates apply the gradients of the turn before, so clipping by the global norm is exact and no
// weight is ever stale. Every group's update is emitted just before the group's first forward: the
// lanes run ahead on their own. Pure: no I/O, no torch, the same spec gives the same plan.
#pragma once

#include "engine/plan/plan_spec.h"
#include "io/status.h"
#include "swap/step_plan.h"

namespace marea {

// Names of kScalar buffers (Content::index).
enum class ScalarName : uint32_t {
  kCoefficient,  // double: what gradients are multiplied by
  kLoss,         // double, one per micro-batch (Content::micro): sum of w * cross-entropy
  kNorm,         // double, one per group (Content::group): sum of squares of its held gradient
};

// Content::index of the gradient of a block's output, which backward passes down in place.
inline constexpr uint32_t kOutputGradient = kNone - 1;

// DoesNotFit names the ring that is too small. A plan that comes back has its waits derived; it has
// not been checked (swap/plan_check.h).
Result<StepPlan> CompileStepPlan(const PlanSpec& spec);

}  // namespace marea
