// Each way in which a GPU cannot be used, as CUDA reports it, has its sentence and its remedy.
#include "swap/gpu_answers.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace marea {
namespace {

GpuAnswers Fine() {
  GpuAnswers answers;
  answers.facts.name = "NVIDIA X";
  answers.facts.major = 9;
  answers.facts.driver_version = answers.facts.runtime_version = 13000;
  answers.count = 1;
  return answers;
}

TEST(GpuAnswers, AGpuThatWorksIsTaken) {
  EXPECT_TRUE(JudgeGpu(Fine()).ok());
  GpuAnswers newer_driver = Fine();
  newer_driver.facts.driver_version = 14000;
  EXPECT_TRUE(JudgeGpu(newer_driver).ok());
}

TEST(GpuAnswers, EachFailureHasItsSentence) {
  const struct {
    std::function<void(GpuAnswers&)> breaks;
    std::string words;
  } cases[] = {
      {[](GpuAnswers& a) { a.facts.driver_version = 0; }, "there is no NVIDIA driver"},
      {[](GpuAnswers& a) { a.facts.driver_version = 12040; },
       "the NVIDIA driver serves CUDA 12.4 but this build needs 13.0"},
      {[](GpuAnswers& a) { a.count = 0; }, "finds no GPU"},
      {[](GpuAnswers& a) { a.count_error = cudaErrorNoDevice; }, "finds no GPU"},
      {[](GpuAnswers& a) { a.count_error = cudaErrorSystemDriverMismatch; }, "cannot be used"},
      {[](GpuAnswers& a) { a.facts.index = 2; }, "GPU 2 was asked for but there are 1"},
      {[](GpuAnswers& a) { a.facts.major = 7; }, "has compute capability 7.0"},
      {[](GpuAnswers& a) { a.start_error = cudaErrorDevicesUnavailable; }, "held exclusively"},
      {[](GpuAnswers& a) { a.start_error = cudaErrorMemoryAllocation; }, "no memory left"},
      {[](GpuAnswers& a) { a.start_error = cudaErrorNoKernelImageForDevice; }, "holds no code"},
  };
  for (const auto& one : cases) {
    GpuAnswers answers = Fine();
    one.breaks(answers);
    const Status status = JudgeGpu(answers);
    ASSERT_FALSE(status.ok()) << one.words;
    EXPECT_EQ(status.code(), ErrorCode::kUnavailable) << status.message();
    EXPECT_NE(status.message().find(one.words), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace marea
