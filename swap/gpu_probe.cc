#include "swap/gpu_probe.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include "io/units.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

// The oldest GPU whose code is in this build and that computes in bf16.
constexpr int kOldestMajor = 8;

std::string Version(int cuda_version) {
  return fmt::format("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

Status CheckDriver(GpuFacts& facts) {
  (void)cudaRuntimeGetVersion(&facts.runtime_version);
  // 0 where no driver is installed.
  (void)cudaDriverGetVersion(&facts.driver_version);
  if (facts.driver_version == 0) {
    return Status::Unavailable(
        "there is no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded); install one, "
        "in a container start it with --gpus all, or pass --device cpu");
  }
  if (facts.driver_version / 1000 < facts.runtime_version / 1000) {
    return Status::Unavailable(fmt::format(
        "the NVIDIA driver serves CUDA {} but this build needs {}; install a newer driver or pass "
        "--device cpu",
        Version(facts.driver_version), Version(facts.runtime_version)));
  }
  return Status::Ok();
}

Status CheckCount(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return Status::Unavailable(
        "the NVIDIA driver finds no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES, or pass "
        "--device cpu");
  }
  if (error != cudaSuccess) {
    return CudaStatus(error, "starting CUDA").WithContext("the GPU cannot be used");
  }
  if (index >= count) {
    return Status::Unavailable(fmt::format(
        "GPU {} was asked for but there are {}; see CUDA_VISIBLE_DEVICES", index, count));
  }
  return Status::Ok();
}

// Makes the context: what can fail because of others fails here.
Status Attach(GpuFacts& facts) {
  cudaError_t error = cudaSetDevice(facts.index);
  if (error == cudaSuccess) error = cudaFree(nullptr);
  if (error == cudaErrorDevicesUnavailable || error == cudaErrorDeviceAlreadyInUse) {
    return Status::Unavailable(fmt::format(
        "GPU {} ({}) is held exclusively by another process (nvidia-smi shows which); wait for it, "
        "choose another by CUDA_VISIBLE_DEVICES, or pass --device cpu",
        facts.index, facts.name));
  }
  if (error == cudaErrorMemoryAllocation) {
    return Status::Unavailable(fmt::format(
        "GPU {} ({}) has no memory left even to start with, because other processes hold it "
        "(nvidia-smi shows which); end them or choose another by CUDA_VISIBLE_DEVICES",
        facts.index, facts.name));
  }
  MAREA_RETURN_IF_ERROR(CudaStatus(error, fmt::format("starting on GPU {}", facts.index)));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  MAREA_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the GPU's memory"));
  facts.free_bytes = free_bytes;
  facts.total_bytes = total_bytes;
  return Status::Ok();
}

}  // namespace

bool BuiltWithCuda() {
  return true;
}

bool HasNvidiaDriver() {
  return ::access("/dev/nvidiactl", F_OK) == 0;
}

Result<GpuFacts> ProbeGpu(int index) {
  GpuFacts facts;
  facts.index = index;
  MAREA_RETURN_IF_ERROR(CheckDriver(facts));
  MAREA_RETURN_IF_ERROR(CheckCount(index));
  cudaDeviceProp properties;
  MAREA_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, index), "asking what the GPU is"));
  facts.name = properties.name;
  facts.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                          properties.pciDeviceID);
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.sm_count = static_cast<uint32_t>(properties.multiProcessorCount);
  if (facts.major < kOldestMajor) {
    return Status::Unavailable(fmt::format(
        "GPU {} ({}) has compute capability {}.{}, but this build needs 8.0 or newer (bf16); pass "
        "--device cpu",
        index, facts.name, facts.major, facts.minor));
  }
  MAREA_RETURN_IF_ERROR(Attach(facts));
  return facts;
}

}  // namespace marea
