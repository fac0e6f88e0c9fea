// The sum of squares of a gradient, for the global norm and exact clipping.
//
// Note [Fixed blocks]: floating-point addition depends on its order, so the order is fixed by the
// element numbers of a parameter group and by nothing else. A block is kNormBlockElements elements
// in a row. Within a block, element j goes to the double accumulator j mod 8 in ascending order,
// and the eight are added pairwise; squares of floats are exact in double. Block sums are then
// added one by one in ascending order to a running sum that is handed from chunk to chunk. So
// neither chunks, threads nor the SIMD level change a bit. A block is the unit in which element
// ranges start (64), so that any chunk of a group begins and ends on a block, or ends with the
// group.
//
// Owner: the reduce op. Thread rule: free functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/optim/simd_level.h"

namespace marea {

class WorkerPool;

inline constexpr size_t kNormBlockElements = 64;

// Returns `sum_before` plus the squares of `elements` values, which continue the group where the
// call that returned `sum_before` stopped (0 at the start of a group). Infinity or NaN if the
// gradient holds one; a NaN is always the positive quiet one. Blocks until done; cannot fail.
// REQUIRES: every call for a group but its last has a multiple of kNormBlockElements elements;
// `level` is one of AvailableSimdLevels(); not called from a thread of `pool`.
double SumSquares(WorkerPool& pool, const uint16_t* gradient_bf16, size_t elements,
                  double sum_before, SimdLevel level);
double SumSquares(WorkerPool& pool, const float* gradient_fp32, size_t elements, double sum_before,
                  SimdLevel level);

}  // namespace marea
