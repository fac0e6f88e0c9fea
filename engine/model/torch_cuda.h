// Torch's CUDA side, brought into the process only when a run computes on a GPU: libtorch_cuda and
// what it needs are a gigabyte that a CPU run never maps.
//
// Owner: the run. Thread rule: LoadTorchCuda and ReserveTorchMemory once, on the run's thread;
// EnterComputeStream on the thread that computes.
#pragma once

#include <cstdint>

#include "io/status.h"

namespace marea {

// Loads the libraries beside libtorch_cpu. Unavailable where they are missing, broken or of another
// CUDA than this build.
Status LoadTorchCuda();

// The stream that all of torch's work goes to: a cudaStream_t, owned by torch for the whole
// process. REQUIRES: LoadTorchCuda.
void* TorchComputeStream(int gpu);

// From now on torch holds `bytes` of VRAM for temporaries, taken at once, and never more: a request
// beyond them fails. DoesNotFit where they are not free.
Status ReserveTorchMemory(int gpu, uint64_t bytes);

// Makes the calling thread compute on TorchComputeStream(gpu).
void EnterComputeStream(int gpu);

// What torch's allocator did so far.
struct TorchMemory {
  uint64_t reserved_bytes = 0;
  uint64_t reserved_bytes_peak = 0;
  uint64_t allocated_bytes_peak = 0;  // the most that was in use at once
  uint64_t retry_count = 0;           // times it had to give cached memory back to go on
  uint64_t segment_count = 0;         // times it asked the driver for memory
};
TorchMemory ReadTorchMemory(int gpu);

}  // namespace marea
