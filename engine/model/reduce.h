// From the uses' fp32 accumulators to the gradient that is held.
//
// Thread rule: a pure function; it uses torch's thread pool.
#pragma once

#include "engine/model/block_compute.h"

namespace marea {

// See BlockCompute::Reduce. Returns the sum of squares.
double ReduceUses(ByteSpans uses, ByteSpan held, Precision held_precision);

}  // namespace marea
