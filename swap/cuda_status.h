// What CUDA's runtime answered, as a Status. Only in builds with MAREA_CUDA.
//
// Thread rule: a pure function.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "io/status.h"

namespace marea {

// Ok for cudaSuccess. `what` says what was being done ("updating the weights"); the sentence is
// "<what>: <what happened> (<CUDA's words>); <remedy>".
//   DoesNotFit   the GPU's memory is used up: names --vram
//   Unavailable  this machine has no GPU, driver or code for it
//   Failed       the GPU stopped working (every later call fails too), and all else
// CUDA reports a failed kernel at some later call: what failed then lies before `what`.
Status CudaStatus(cudaError_t error, std::string_view what);

// The same for the launch that has just been made; takes the error, so that the next check is
// clean.
inline Status LastCudaStatus(std::string_view what) {
  return CudaStatus(cudaGetLastError(), what);
}

}  // namespace marea
