// What CUDA says when it is asked for a GPU, and what that means: apart from the asking, so that
// every way of failing can be tested on a machine that has none. Only in builds with MAREA_CUDA.
//
// Thread rule: a pure function.
#pragma once

#include <cuda_runtime_api.h>

#include "io/status.h"
#include "swap/gpu_probe.h"

namespace marea {

struct GpuAnswers {
  GpuFacts facts;  // versions, and what the GPU is, as far as it could be asked
  cudaError_t count_error = cudaSuccess;
  int count = 0;
  cudaError_t start_error = cudaSuccess;  // of making the context
};

// Ok, or ProbeGpu's sentence for the first thing that is wrong.
Status JudgeGpu(const GpuAnswers& answers);

}  // namespace marea
