// silu(gate) * up and its gradients against a loop on the CPU in double: to rounding. That the bits
// are those of torch's ops on the GPU is shown where torch is (layer_ops_gpu_test.cc).
#include "engine/model/silu_cuda.h"
#include "tests/gpu/gpu_test.h"

namespace marea {
namespace {

class SiluKernelTest : public GpuTest {
 protected:
  // Within a few roundings of one another; both infinite or both no numbers.
  template <typename Element>
  void ExpectNear(const std::vector<Element>& found, const std::vector<double>& expected) {
    const double step = sizeof(Element) == 2 ? 0x1p-8 : 0x1p-24;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double value = static_cast<float>(found[i]);
      ASSERT_NEAR(value, expected[i], 6 * step * std::abs(expected[i]) + 1e-30) << "element " << i;
    }
  }

  template <typename Element>
  void Compare(size_t count, size_t skip, float scale) {
    SCOPED_TRACE(testing::Message()
                 << count << " elements, skip " << skip << ", " << sizeof(Element));
    const auto gate = As<Element>(Ordinary(count, 1, scale));
    const auto up = As<Element>(Ordinary(count, 2));
    const auto gradient = As<Element>(Ordinary(count, 3));
    std::vector<double> product(count);
    std::vector<double> of_gate(count);
    std::vector<double> of_up(count);
    for (size_t i = 0; i < count; ++i) {
      const double x = static_cast<float>(gate[i]);
      const double u = static_cast<float>(up[i]);
      const double g = static_cast<float>(gradient[i]);
      const double sigmoid = 1 / (1 + std::exp(-x));
      product[i] = x * sigmoid * u;
      of_up[i] = g * x * sigmoid;
      of_gate[i] = g * u * sigmoid * (1 + x * (1 - sigmoid));
    }
    constexpr Precision precision = PrecisionOf<Element>();
    const GpuArray<Element> gpu_gate(gate, skip);
    const GpuArray<Element> gpu_up(up, skip);
    const GpuArray<Element> gpu_gradient(gradient, skip);
    const std::vector<Element> empty(count);
    GpuArray<Element> gpu_product(empty, skip);
    GpuArray<Element> gpu_of_gate(empty, skip);
    GpuArray<Element> gpu_of_up(empty, skip);
    ASSERT_OK(SiluTimesOnGpu(gpu_gate.data(), gpu_up.data(), precision, count, gpu_product.data(),
                             stream_));
    ASSERT_OK(SiluTimesGradientsOnGpu(gpu_gate.data(), gpu_up.data(), gpu_gradient.data(),
                                      precision, count, gpu_of_gate.data(), gpu_of_up.data(),
                                      stream_));
    ASSERT_OK(Finish());
    ExpectNear(gpu_product.Get(), product);
    ExpectNear(gpu_of_up.Get(), of_up);
    // 1 + x * (1 - sigmoid) cancels near its zero, and carries the rounding of 1 - sigmoid x times.
    const std::vector<Element> found = gpu_of_gate.Get();
    for (size_t i = 0; i < count; ++i) {
      const double x = std::abs(static_cast<float>(gate[i]));
      const double step = sizeof(Element) == 2 ? 0x1p-8 : 0x1p-24;
      ASSERT_NEAR(static_cast<float>(found[i]), of_gate[i],
                  step * (6 * std::abs(of_gate[i]) + 2 * (1 + x)))
          << "element " << i;
    }
  }
};

TEST_F(SiluKernelTest, SmallSizes) {
  for (const size_t count : {1, 3, 7, 8, 9, 255, 256, 257, 2049, 5000}) {
    for (const size_t skip : {0, 1}) {
      Compare<Bf16>(count, skip, 4);
      Compare<float>(count, skip, 4);
    }
  }
}

TEST_F(SiluKernelTest, SteepGates) {
  Compare<Bf16>(100000, 0, 60);
  Compare<float>(100000, 0, 60);
}

}  // namespace
}  // namespace marea
