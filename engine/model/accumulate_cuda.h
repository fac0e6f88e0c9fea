// Adding a gradient to its fp32 sum on the GPU. Only in builds with MAREA_CUDA.
//
// Thread rule: a free function; it only enqueues.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/model/accumulate.h"
#include "engine/model/model_shape.h"
#include "io/status.h"

namespace marea {

// Enqueues on `stream`: target = source (kFirst, reads no target) or target += source (kAdd), for
// `count` values in fp32; bf16 is widened first. Both are memory that the device can reach and do
// not overlap. Errors: those of CudaStatus for the launch.
Status AccumulateOnGpu(float* target, const void* source, Precision source_precision,
                       uint64_t count, Accumulate mode, cudaStream_t stream);

}  // namespace marea
