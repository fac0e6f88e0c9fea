// Proofs over a finished plan, by code that shares nothing with the derivation of waits but the
// cells and the clocks.
//
// None of them believes the compiler: races are looked for by unrolling three turns and asking for
// every conflict of bytes to be ordered; buffers must lie inside their spaces and rings; and the
// def-use check follows every byte of every shard through copies, so that each read has the newest
// version of the right bytes of the right shard under it. What they cannot see is an access that
// was never declared; the value oracle of the simulation tests covers that.
//
// Each returns Ok or a Failed status that names the op. Pure functions.
#pragma once

#include <span>

#include "io/status.h"
#include "swap/step_plan.h"

namespace marea {

// Every pair of ops that touch a common byte, one of them writing, is ordered by waits and lanes.
Status CheckRaces(const StepPlan& plan);

// Every buffer lies in its space (and ring), every access in its buffer, both sides of a transfer
// have the same length, and homes do not overlap.
Status CheckBounds(const StepPlan& plan);

// Follows contents through a run of turns with these masks. Homes start with version 0 of weights,
// optimizer states and scalars; everything else starts undefined.
Status CheckDefUse(const StepPlan& plan, std::span<const StepMask> masks);

// All of the above, with a sequence of masks that covers first, steady, partial, evaluating and
// last turns.
Status CheckPlan(const StepPlan& plan, uint32_t micro_count);

}  // namespace marea
