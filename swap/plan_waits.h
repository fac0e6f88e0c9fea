// Derives the waits of a plan from its declared accesses.
//
// Two ops conflict when they touch a common byte and at least one writes it. For every conflict the
// later op (in the serial program, unrolled over turns of the loop) must start after the earlier
// one has completed. A wait is added only where lane order and the op's other waits do not already
// imply it, so the waits are minimal: removing any one leaves a race, which plan_check finds.
#pragma once

#include "io/status.h"
#include "swap/step_plan.h"

namespace marea {

// Fills `waits` and `position` of every op and `lane_ops`. REQUIRES: buffer offsets and lane depths
// are assigned. Fails (a compiler's bug, not the user's) when a wait would reach back more than one
// turn or the waits do not settle.
Status DeriveWaits(StepPlan& plan);

}  // namespace marea
