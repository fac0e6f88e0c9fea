#include "swap/gpu_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include "swap/cuda_status.h"
#include "swap/gpu_answers.h"

namespace marea {
namespace {

// The oldest GPU whose code is in this build and that computes in bf16.
constexpr int kOldestMajor = 8;

std::string Version(int cuda_version) {
  return fmt::format("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

Status JudgeDriver(const GpuAnswers& answers) {
  const GpuFacts& facts = answers.facts;
  if (facts.driver_version == 0) {
    return Status::Unavailable(
        "there is no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded); install one, "
        "or "
        "in a container start it with --gpus all");
  }
  if (facts.driver_version / 1000 >= facts.runtime_version / 1000) return Status::Ok();
  return Status::Unavailable(fmt::format(
      "the NVIDIA driver serves CUDA {} but this build needs {}; install a newer driver",
      Version(facts.driver_version), Version(facts.runtime_version)));
}

Status JudgeCount(const GpuAnswers& answers) {
  const cudaError_t error = answers.count_error;
  if (error == cudaErrorNoDevice || (error == cudaSuccess && answers.count == 0)) {
    return Status::Unavailable(
        "the NVIDIA driver finds no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (error != cudaSuccess) {
    return CudaStatus(error, "starting CUDA").WithContext("the GPU cannot be used");
  }
  if (answers.facts.index < answers.count) return Status::Ok();
  return Status::Unavailable(
      fmt::format("GPU {} was asked for but there are {} (each rank of a machine needs one); see "
                  "CUDA_VISIBLE_DEVICES, or start fewer ranks",
                  answers.facts.index, answers.count));
}

Status JudgeAge(const GpuFacts& facts) {
  if (facts.major >= kOldestMajor) return Status::Ok();
  return Status::Unavailable(fmt::format(
      "GPU {} ({}) has compute capability {}.{}, but this build needs 8.0 or newer (bf16)",
      facts.index, facts.name, facts.major, facts.minor));
}

Status JudgeStart(const GpuAnswers& answers) {
  const GpuFacts& facts = answers.facts;
  switch (answers.start_error) {
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse:
      return Status::Unavailable(fmt::format(
          "GPU {} ({}) is held exclusively by another process (nvidia-smi shows which); wait for "
          "it, or choose another by CUDA_VISIBLE_DEVICES",
          facts.index, facts.name));
    case cudaErrorMemoryAllocation:
      return Status::Unavailable(fmt::format(
          "GPU {} ({}) has no memory left even to start with, because other processes hold it "
          "(nvidia-smi shows which); end them or choose another by CUDA_VISIBLE_DEVICES",
          facts.index, facts.name));
    default:
      return CudaStatus(answers.start_error, fmt::format("starting on GPU {}", facts.index));
  }
}

}  // namespace

bool BuiltWithCuda() {
  return true;
}

bool HasNvidiaDriver() {
  return ::access("/dev/nvidiactl", F_OK) == 0;
}

int GpuOfLocalRank(uint32_t local_rank) {
  int count = 0;
  const bool sees_one = cudaGetDeviceCount(&count) == cudaSuccess && count == 1;
  return sees_one ? 0 : static_cast<int>(local_rank);
}

Status JudgeGpu(const GpuAnswers& answers) {
  MAREA_RETURN_IF_ERROR(JudgeDriver(answers));
  MAREA_RETURN_IF_ERROR(JudgeCount(answers));
  MAREA_RETURN_IF_ERROR(JudgeAge(answers.facts));
  return JudgeStart(answers);
}

Result<GpuFacts> ProbeGpu(int index) {
  GpuAnswers answers;
  GpuFacts& facts = answers.facts;
  facts.index = index;
  (void)cudaRuntimeGetVersion(&facts.runtime_version);
  (void)cudaDriverGetVersion(&facts.driver_version);  // 0 where no driver is installed
  answers.count_error = cudaGetDeviceCount(&answers.count);
  cudaDeviceProp properties;
  if (answers.count_error == cudaSuccess && index < answers.count) {
    MAREA_RETURN_IF_ERROR(
        CudaStatus(cudaGetDeviceProperties(&properties, index), "asking what the GPU is"));
    facts.name = properties.name;
    facts.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                            properties.pciDeviceID);
    facts.major = properties.major;
    facts.minor = properties.minor;
    facts.sm_count = static_cast<uint32_t>(properties.multiProcessorCount);
    // The context is made here: what can fail because of others fails now.
    answers.start_error = cudaSetDevice(index);
    if (answers.start_error == cudaSuccess) answers.start_error = cudaFree(nullptr);
  }
  MAREA_RETURN_IF_ERROR(JudgeGpu(answers));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  MAREA_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the GPU's memory"));
  facts.free_bytes = free_bytes;
  facts.total_bytes = total_bytes;
  return facts;
}

}  // namespace marea
