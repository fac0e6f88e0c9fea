// silu(gate) * up on the GPU, forward and gradient, each in one kernel. Only in builds with
// MAREA_CUDA. Source of the form: Shazeer, "GLU Variants Improve Transformer", 2020 (SwiGLU).
//
// Arithmetic: in fp32, rounded to the element type where torch rounds if each step is an op of its
// own (silu, each product): the bits are those of at::silu, of the product and of their gradients
// on the GPU.
//
// Thread rule: free functions; they only enqueue.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/model/model_shape.h"
#include "io/status.h"

namespace marea {

// Enqueues output = silu(gate) * up, for `count` elements in `precision`. Errors: those of
// CudaStatus for the launch. The arrays are memory that the device can reach; at least one element.
Status SiluTimesOnGpu(const void* gate, const void* up, Precision precision, uint64_t count,
                      void* output, cudaStream_t stream);

// Enqueues the gradients of gate and up from the output's, likewise.
Status SiluTimesGradientsOnGpu(const void* gate, const void* up, const void* output_gradient,
                               Precision precision, uint64_t count, void* gate_gradient,
                               void* up_gradient, cudaStream_t stream);

}  // namespace marea
