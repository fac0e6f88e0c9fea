#include "engine/model/torch_runtime.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <stdlib.h>
#include <torch/version.h>

#include "io/check.h"

namespace marea {

void StartTorchRuntime(const TorchRuntimeOptions& options) {
  MAREA_CHECK(options.threads >= 1, "torch needs at least one thread");
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
