// Torch's process-wide settings, in one place.
//
// Owner: the command line, before anything else touches torch. Thread rule: StartTorchRuntime once,
// on the main thread, before compute threads exist; EnterComputeThread once on each of them.
#pragma once

#include <cstdint>

namespace marea {

struct TorchRuntimeOptions {
  // Threads of torch's CPU kernels. Their sums depend on it, so it is set, recorded and the same
  // for every placement.
  uint32_t threads = 1;
  // Ask for kernels that give the same bits every time, and fail where there is none. CPU kernels
  // always do; on a GPU this costs speed.
  bool deterministic = true;
};

// REQUIRES: threads >= 1. A second call with other options changes kernels' results: do not.
void StartTorchRuntime(const TorchRuntimeOptions& options);

// Gives the calling thread the process's thread count: OpenMP keeps one for each thread.
void EnterComputeThread();

// What torch really uses on this thread, for the run's record.
uint32_t TorchThreads();
// "2.11.0"
const char* TorchVersion();

}  // namespace marea
