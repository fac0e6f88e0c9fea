// The figures of a machine profile that only a GPU gives: the link's and the matrix product's.
#include <algorithm>
#include <memory>

#include "engine/model/matmul_load.h"
#include "engine/model/torch_cuda.h"
#include "src/bench/copy_speed.h"
#include "src/bench/memory_speed.h"
#include "swap/cuda_device.h"
#include "tests/gpu/gpu_test.h"

namespace marea {
namespace {

using MachineSpeedOnGpu = GpuTest;

TEST_F(MachineSpeedOnGpu, TheLinkIsMeasuredBothWays) {
  const StepPlan no_ops;
  CudaDeviceOptions options;
  options.vram_bytes = kCopySpeedVramBytes;
  const Result<std::unique_ptr<Device>> device = MakeCudaDevice(no_ops, options);
  ASSERT_OK(device.status());
  const Result<CopyRates> rates = MeasureCopies(*device.value(), {.seconds = 0.2});
  ASSERT_OK(rates.status());
  // Of PCIe 3 with four lanes to NVLink-C2C; both at once give each no more than alone.
  for (const double rate : {rates.value().h2d, rates.value().d2h}) {
    EXPECT_GT(rate, 2e9);
    EXPECT_LT(rate, 1e12);
  }
  EXPECT_LT(rates.value().both_h2d, 1.1 * rates.value().h2d);
  EXPECT_LT(rates.value().both_d2h, 1.1 * rates.value().d2h);
  EXPECT_GT(rates.value().both_h2d + rates.value().both_d2h,
            0.8 * std::max(rates.value().h2d, rates.value().d2h));
  EXPECT_TRUE(device.value()->Shutdown().ok());
}

TEST_F(MachineSpeedOnGpu, AProductIsRightAndTakesTime) {
  ASSERT_OK(LoadTorchCuda());
  Result<std::unique_ptr<MatmulLoad>> load = MatmulLoad::Make(Precision::kBf16, 0);
  ASSERT_OK(load.status());
  const Result<double> seconds =
      MedianRunSeconds({.seconds = 0.2}, [&] { return load.value()->Run(); });
  ASSERT_OK(seconds.status());
  // Without waiting for the stream it would be launches alone: some 10^16.
  const double flop_per_second = load.value()->flop() / seconds.value();
  EXPECT_GT(flop_per_second, 1e13);
  EXPECT_LT(flop_per_second, 4e15);
  RecordProperty("gpu_bf16_tflop_per_second", static_cast<int>(flop_per_second / 1e12));
}

}  // namespace
}  // namespace marea
