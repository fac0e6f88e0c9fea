// What a build without CUDA answers.
#include "swap/cuda_device.h"
#include "swap/gpu_probe.h"

namespace marea {
namespace {

Status NoCuda() {
  return Status::Unavailable(
      "this build of marea has no CUDA: build it with MAREA_CUDA=on (make build MAREA_CUDA=on)");
}

}  // namespace

bool BuiltWithCuda() {
  return false;
}

bool HasNvidiaDriver() {
  return false;
}

int GpuOfLocalRank(uint32_t local_rank) {
  return static_cast<int>(local_rank);
}

Result<GpuFacts> ProbeGpu(int /*index*/) {
  return NoCuda();
}

Result<std::unique_ptr<Device>> MakeCudaDevice(const StepPlan& /*plan*/,
                                               const CudaDeviceOptions& /*options*/) {
  return NoCuda();
}

}  // namespace marea
