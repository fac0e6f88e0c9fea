#include "swap/cuda_status.h"

#include <fmt/format.h>

namespace marea {
namespace {

enum class Failure { kMemory, kDeviceLost, kNoDevice, kNoCode, kOther };

Failure Classify(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return Failure::kMemory;
    case cudaErrorAssert:
    case cudaErrorContained:
    case cudaErrorECCUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorUnknown:
      return Failure::kDeviceLost;
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInitializationError:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
      return Failure::kNoDevice;
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return Failure::kNoCode;
    default:
      return Failure::kOther;
  }
}

}  // namespace

Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return Status::Ok();
  const std::string words =
      fmt::format("{}, {}", cudaGetErrorString(error), cudaGetErrorName(error));
  switch (Classify(error)) {
    case Failure::kMemory:
      return Status::DoesNotFit(
          fmt::format("{}: no memory is left ({}); give --vram a smaller size, or end the other "
                      "programs on this GPU",
                      what, words));
    case Failure::kDeviceLost:
      return Status::Failed(
          fmt::format("{}: the GPU stopped working ({}); look for its Xid line in `dmesg` and "
                      "start the run again",
                      what, words));
    case Failure::kNoDevice:
      return Status::Unavailable(fmt::format(
          "{}: no GPU can be used ({}); see that `nvidia-smi` lists one and that its driver "
          "supports CUDA 13",
          what, words));
    case Failure::kNoCode:
      return Status::Unavailable(
          fmt::format("{}: this build holds no code for the GPU ({}); build with the GPU's compute "
                      "capability in TORCH_CUDA_ARCH_LIST",
                      what, words));
    case Failure::kOther:
      break;
  }
  return Status::Failed(fmt::format("{}: CUDA failed ({})", what, words));
}

}  // namespace marea
