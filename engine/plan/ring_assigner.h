// Gives every ring value its offset: in order of first use, each after the one before, wrapping at
// the ring's end and stepping over what is still live. The rings restart every turn.
//
// Values of a *batch* (all weights of a block, all kinds of a chunk) lie side by side: they are
// allocated together when the first of them is used, so that a ring as large as its largest batch
// always suffices, whatever its head.
//
// Live means: between first and last use in the serial program. Bytes whose value is dead are
// handed out again at once; the waits that this makes necessary are derived afterwards. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "io/status.h"
#include "swap/step_plan.h"

namespace marea {

// Sets Buffer::offset of every value with a ring. `batches` lists the values of each batch; every
// value is in one. DoesNotFit names the ring, the op at which it is full and the bytes needed
// there.
Status AssignRings(StepPlan& plan, const std::vector<std::vector<uint32_t>>& batches);

}  // namespace marea
