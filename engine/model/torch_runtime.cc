#include "engine/model/torch_runtime.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <malloc.h>
#include <stdlib.h>
#include <torch/version.h>

#include "io/check.h"

namespace marea {
namespace {

// Large temporaries go back to the system when they are freed. By itself glibc raises its threshold
// to 32 MiB as it sees them, and the heaps of several threads then keep holes of that size: 0 to 80
// MiB more than what is in use, different at every run.
void BoundHeapHoles() {
  constexpr int kMappedBytesMin = 16 << 20;
  constexpr int kKeptBytesMax = 32 << 20;  // free at a heap's end
  mallopt(M_MMAP_THRESHOLD, kMappedBytesMin);
  mallopt(M_TRIM_THRESHOLD, kKeptBytesMax);
}

}  // namespace

void StartTorchRuntime(const TorchRuntimeOptions& options) {
  MAREA_CHECK(options.threads >= 1, "torch needs at least one thread");
  BoundHeapHoles();
  // cuBLAS reads it at the first call on the GPU; without it torch refuses to be deterministic.
  if (options.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::set_num_threads(static_cast<int>(options.threads));
  at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  // The flag would also fill every new tensor with NaN, a cost without a use: nothing here reads
  // memory that it has not written.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

void EnterComputeThread() {
  at::init_num_threads();
}

uint32_t TorchThreads() {
  return static_cast<uint32_t>(at::get_num_threads());
}

const char* TorchVersion() {
  return TORCH_VERSION;
}

}  // namespace marea
