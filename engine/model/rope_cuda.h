// Rotary position embedding on the GPU, in one kernel. Only in builds with MAREA_CUDA.
//
// Arithmetic: each product is rounded to the element type and so is their sum, as torch rounds
// where each is an op of its own: the bits are those of ApplyRope's ops on the GPU.
//
// Thread rule: a free function; it only enqueues.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/model/model_shape.h"
#include "engine/model/turn.h"
#include "io/status.h"

namespace marea {

struct RopeRows {
  uint32_t rows;    // the position of row r is r % length
  uint32_t length;  // rows of the tables
  uint32_t heads;
  uint32_t head_dim;  // even; element i of a head turns with i + head_dim / 2
};

// Enqueues output = input turned; both are [rows, heads, head_dim], `cosine` and `sine` are
// [length, head_dim] with equal halves, all contiguous in `precision`, where the device can reach
// them. Errors: those of CudaStatus for the launch. REQUIRES: at least one element.
Status RotateOnGpu(const RopeRows& shape, Precision precision, const void* input,
                   const void* cosine, const void* sine, Turn turn, void* output,
                   cudaStream_t stream);

}  // namespace marea
