// AdamW on the GPU: the twin of RunAdamW, with the same bits for every input (Note [Same bits
// everywhere] in adamw.h). Only in builds with MAREA_CUDA.
//
// Owner: the optimizer op. Thread rule: a free function; it only enqueues.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/optim/adamw.h"
#include "io/status.h"

namespace marea {

// Enqueues the update of `chunk` in place on `stream`. The chunk's arrays are memory that the
// device can reach: its own, or pinned host memory over the bus. `gradient_scale` is such memory
// too and is read by the kernel, so that the clipping coefficient need not be known at launch; it
// is rounded to float as static_cast does. chunk.gradient_scale is ignored. Packs of four are
// loaded where every array is aligned to them (any multiple of 64 elements of a group is).
// Errors: those of CudaStatus for the launch; what the kernel itself does wrong shows later.
// REQUIRES: exactly one form of the weight and one of the gradient is given.
Status AdamWOnGpu(const AdamWChunk& chunk, const double* gradient_scale,
                  const AdamWConstants& constants, cudaStream_t stream);

}  // namespace marea
