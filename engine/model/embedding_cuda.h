// The embedding block on the GPU: the twin of embedding.h, with the same bits (but for the payload
// of a NaN in fp32). Only in builds with MAREA_CUDA.
//
// Every pointer is memory that the device can reach. Rows are those of the micro-batch, [sequences,
// sequence_length], row-major; tables, output and gradient are in `precision`, row-major with
// `hidden` columns, and do not overlap. Thread rule: free functions; they only enqueue.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/model/accumulate.h"
#include "engine/model/model_shape.h"
#include "engine/model/token_groups.h"
#include "io/status.h"

namespace marea {

struct EmbedTables {
  const void* tokens;
  const void* positions = nullptr;  // null where the model has none
};

// Enqueues output = tokens' rows (+ positions' rows, added in fp32 and rounded).
// Errors: those of CudaStatus for the launch. REQUIRES: CheckTokens; `hidden` >= 1.
Status EmbedForwardOnGpu(const BatchShape& batch, uint32_t hidden, Precision precision,
                         const int32_t* tokens, const EmbedTables& tables, void* output,
                         cudaStream_t stream);

// fp32 accumulators of whole groups, padding included; null for a frozen or missing group.
struct EmbedSums {
  float* tokens = nullptr;
  uint64_t token_elements = 0;
  float* positions = nullptr;
  uint64_t position_elements = 0;
};

// Enqueues the addition of every row's gradient to its token's and its position's sum, each in the
// order of the batch; kFirst zeroes the sums before. `groups` (of this micro-batch, without the
// padding token) point to memory that the device can reach until the stream has passed the call.
// Errors: those of CudaStatus. REQUIRES: `hidden` >= 1.
Status EmbedBackwardOnGpu(const BatchShape& batch, uint32_t hidden, Precision precision,
                          const TokenGroups& groups, const void* gradient, const EmbedSums& sums,
                          Accumulate mode, cudaStream_t stream);

}  // namespace marea
