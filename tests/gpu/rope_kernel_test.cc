// The rotation's kernel against a loop on the CPU that rounds where the kernel does: the same bits.
#include "engine/model/rope_cuda.h"
#include "tests/gpu/gpu_test.h"

namespace marea {
namespace {

template <typename Element>
std::vector<Element> Turned(const RopeRows& shape, const std::vector<Element>& input,
                            const std::vector<Element>& cosine, const std::vector<Element>& sine,
                            Turn turn) {
  std::vector<Element> output(input.size());
  const uint32_t half = shape.head_dim / 2;
  for (size_t at = 0; at < input.size(); ++at) {
    const size_t column = at % shape.head_dim;
    const size_t row = at / shape.head_dim / shape.heads;
    const size_t angle = row % shape.length * shape.head_dim + column;
    const bool first = column < half;
    const float other = static_cast<float>(input[first ? at + half : at - half]);
    const float signed_other = first == (turn == Turn::kForth) ? -other : other;
    output[at] = Element(
        Rounded<Element>(static_cast<float>(input[at]) * static_cast<float>(cosine[angle])) +
        Rounded<Element>(signed_other * static_cast<float>(sine[angle])));
  }
  return output;
}

class RopeKernelTest : public GpuTest {
 protected:
  template <typename Element>
  void Compare(const RopeRows& shape, size_t skip) {
    SCOPED_TRACE(testing::Message()
                 << shape.rows << " rows, " << shape.heads << " heads of " << shape.head_dim
                 << ", skip " << skip << ", " << sizeof(Element));
    const auto input =
        As<Element>(Ordinary(size_t{shape.rows} * shape.heads * shape.head_dim, shape.rows));
    // Equal halves, as RopeTable's.
    std::vector<float> cosines = Ordinary(size_t{shape.length} * shape.head_dim, 1);
    std::vector<float> sines = Ordinary(cosines.size(), 2);
    for (size_t i = 0; i < cosines.size(); ++i) {
      if (i % shape.head_dim < shape.head_dim / 2) continue;
      cosines[i] = cosines[i - shape.head_dim / 2];
      sines[i] = sines[i - shape.head_dim / 2];
    }
    const auto cosine = As<Element>(cosines);
    const auto sine = As<Element>(sines);
    const GpuArray<Element> gpu_input(input, skip);
    const GpuArray<Element> gpu_cosine(cosine, skip);
    const GpuArray<Element> gpu_sine(sine, skip);
    for (const Turn turn : {Turn::kForth, Turn::kBack}) {
      GpuArray<Element> output(std::vector<Element>(input.size()), skip);
      ASSERT_OK(RotateOnGpu(shape, PrecisionOf<Element>(), gpu_input.data(), gpu_cosine.data(),
                            gpu_sine.data(), turn, output.data(), stream_));
      ASSERT_OK(Finish());
      EXPECT_TRUE(SameBits(output.Get(), Turned(shape, input, cosine, sine, turn)));
    }
  }
};

TEST_F(RopeKernelTest, SmallHeads) {
  for (const uint32_t head_dim : {2, 6, 16, 20, 64, 80, 128}) {
    for (const uint32_t heads : {1, 3}) {
      for (const size_t skip : {0, 1}) {
        Compare<Bf16>({14, 7, heads, head_dim}, skip);
        Compare<float>({14, 7, heads, head_dim}, skip);
      }
    }
  }
}

TEST_F(RopeKernelTest, ManyRows) {
  Compare<Bf16>({4096, 1024, 8, 64}, 0);
  Compare<float>({1024, 512, 3, 128}, 0);
}

}  // namespace
}  // namespace marea
