// From the uses' fp32 accumulators to the gradient that is held, on the GPU: the twin of
// ReduceUses, with the same bits for every input (Note [Reduce in blocks] in reduce_block.h). Only
// in builds with MAREA_CUDA.
//
// Owner: the reduce op. Thread rule: a free function; it only enqueues.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "engine/model/model_shape.h"
#include "engine/model/reduce_block.h"
#include "io/status.h"

namespace marea {

inline constexpr size_t kReduceUsesMax = 8;

// Doubles of device memory that a reduction of so many elements needs as scratch.
constexpr uint64_t ReduceScratchDoubles(uint64_t elements) {
  return ReduceBlocks(elements);
}

// Enqueues on `stream`: held = round(sum of the uses, in the order given) and *square_sum = the sum
// of squares of what is held. Each use and `held` have `elements` values and do not overlap.
// `block_sums` is scratch that belongs to the call until the stream has passed it. All is memory
// that the device can reach; `square_sum` may be pinned host memory.
// Errors: those of CudaStatus for the launches.
// REQUIRES: 1 to kReduceUsesMax uses (embeddings are used by at most two blocks).
Status ReduceUsesOnGpu(std::span<const float* const> uses, uint64_t elements, void* held,
                       Precision held_precision, double* block_sums, double* square_sum,
                       cudaStream_t stream);

}  // namespace marea
