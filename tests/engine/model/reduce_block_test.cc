// What the kernels on the GPU are held to, held itself to plain arithmetic.
#include "engine/model/reduce_block.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace marea {
namespace {

// Rounding to nearest even by definition: of the two bf16 values around a float, the nearer, and of
// two as near the even one.
TEST(Bf16Test, RoundsToNearestEven) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 101) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const uint16_t rounded = Bf16(value).bits;
    if (std::isnan(value)) {
      ASSERT_EQ(rounded, 0x7fc0) << bits;
      continue;
    }
    const uint32_t below = static_cast<uint32_t>(bits) >> 16;  // towards zero
    const uint32_t rest = static_cast<uint32_t>(bits) & 0xffff;
    const bool up = rest > 0x8000 || (rest == 0x8000 && below % 2 == 1);
    ASSERT_EQ(rounded, below + (up ? 1 : 0)) << bits;
  }
  EXPECT_EQ(static_cast<float>(Bf16(1.5f)), 1.5f);
  EXPECT_TRUE(std::isinf(static_cast<float>(Bf16(std::numeric_limits<float>::max()))));
}

TEST(ReduceBlockTest, NansBecomeThePositiveQuietOne) {
  const std::vector<float> first = {std::bit_cast<float>(0xffc01234u),
                                    std::numeric_limits<float>::infinity(), 1.0f};
  const std::vector<float> second = {1.0f, -std::numeric_limits<float>::infinity(), 2.0f};
  const float* const uses[] = {first.data(), second.data()};
  std::vector<float> wide(3);
  std::vector<Bf16> narrow(3);
  const double sums[] = {ReduceBlock<float>(uses, 0, 3, wide.data()),
                         ReduceBlock<Bf16>(uses, 0, 3, narrow.data())};
  for (const int k : {0, 1}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(wide[k]), 0x7fc00000u);
    EXPECT_EQ(narrow[k].bits, 0x7fc0);
  }
  EXPECT_EQ(wide[2], 3.0f);
  EXPECT_EQ(std::bit_cast<uint64_t>(AddBlockSums(sums)), 0x7ff8000000000000u);
  // One use alone is copied, and its NaN is made the same.
  ReduceBlock<float>(std::span(uses).first(1), 0, 1, wide.data());
  EXPECT_EQ(std::bit_cast<uint32_t>(wide[0]), 0x7fc00000u);
}

}  // namespace
}  // namespace marea
