#include "swap/cuda_status.h"

#include <gtest/gtest.h>

namespace marea {
namespace {

TEST(CudaStatusTest, SuccessIsOk) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "testing").ok());
}

TEST(CudaStatusTest, EachKindOfFailureHasItsCodeAndRemedy) {
  const struct {
    cudaError_t error;
    ErrorCode code;
    const char* says;
  } kCases[] = {
      {cudaErrorMemoryAllocation, ErrorCode::kDoesNotFit, "--vram"},
      {cudaErrorECCUncorrectable, ErrorCode::kFailed, "the GPU stopped working ("},
      {cudaErrorLaunchFailure, ErrorCode::kFailed, "the GPU stopped working ("},
      {cudaErrorIllegalAddress, ErrorCode::kFailed, "the GPU stopped working ("},
      {cudaErrorNoDevice, ErrorCode::kUnavailable, "nvidia-smi"},
      {cudaErrorInsufficientDriver, ErrorCode::kUnavailable, "nvidia-smi"},
      {cudaErrorNoKernelImageForDevice, ErrorCode::kUnavailable, "TORCH_CUDA_ARCH_LIST"},
      {cudaErrorInvalidValue, ErrorCode::kFailed, "CUDA failed ("},
  };
  for (const auto& [error, code, says] : kCases) {
    const Status status = CudaStatus(error, "updating the weights");
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_EQ(status.message().find("updating the weights: "), 0u) << status.message();
    EXPECT_NE(status.message().find(says), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(cudaGetErrorName(error)), std::string::npos);
  }
}

}  // namespace
}  // namespace marea
