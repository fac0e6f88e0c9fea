#include "engine/optim/split_master.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "engine/optim/worker_pool.h"

namespace marea {
namespace {

constexpr uint64_t kFloatPatterns = uint64_t{1} << 32;

bool IsNanBits(uint32_t bits) {
  return (bits & 0x7fffffff) > 0x7f800000;
}

// No branches and no memory, so that compilers turn it into vector code.
uint32_t DifferenceAfterRoundTrip(uint32_t first_bits, uint32_t count) {
  uint32_t difference = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t bits = first_bits + i;
    const SplitFloat split = SplitMaster(std::bit_cast<float>(bits));
    const uint32_t joined = std::bit_cast<uint32_t>(JoinMaster(split.high, split.low));
    const uint32_t expected = IsNanBits(bits) ? (bits & 0xffff0000) | 0x400000 : bits;
    difference |= joined ^ expected;
  }
  return difference;
}

TEST(SplitMasterTest, EveryFloatComesBack) {
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  auto pool = WorkerPool::Create(threads, "floats");
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  std::atomic<uint32_t> difference{0};
  std::atomic<uint64_t> visited{0};
  pool.value()->ParallelFor(0, kFloatPatterns, size_t{1} << 24, [&](size_t first, size_t last) {
    const uint32_t count = static_cast<uint32_t>(last - first);
    difference |= DifferenceAfterRoundTrip(static_cast<uint32_t>(first), count);
    visited += count;
  });
  EXPECT_EQ(difference.load(), 0u);
  EXPECT_EQ(visited.load(), kFloatPatterns);
}

// The high half is the nearest bf16, ties away from zero. Checked against distances in double, over
// every high half, both signs, and low halves around the places where rounding changes.
TEST(SplitMasterTest, HighHalfIsTheNearestBf16) {
  constexpr uint16_t kLows[] = {0,      1,      0x7ffe, 0x7fff, 0x8000,
                                0x8001, 0xfffe, 0xffff, 0x1234, 0xabcd};
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint16_t low : kLows) {
      const uint32_t bits = (high << 16) | low;
      const float master = std::bit_cast<float>(bits);
      if (!std::isfinite(master)) continue;
      const uint16_t stored = SplitMaster(master).high;
      // Bf16 neighbours of the magnitude. Above the largest, infinity stands where 2^128 would.
      const auto magnitude = [](uint32_t bf16) {
        const float value = FloatFromBf16(static_cast<uint16_t>(bf16));
        return std::isinf(value) ? std::ldexp(1.0, 128) : static_cast<double>(value);
      };
      const uint32_t below = high & 0x7fff;
      const double down = std::fabs(static_cast<double>(master)) - magnitude(below);
      const double up = magnitude(below + 1) - std::fabs(static_cast<double>(master));
      const uint32_t expected = (high & 0x8000) | (up <= down ? below + 1 : below);
      ASSERT_EQ(stored, expected) << std::hex << bits;
    }
  }
}

TEST(SplitMasterTest, SpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(SplitMaster(infinity).high, 0x7f80);
  EXPECT_EQ(SplitMaster(infinity).low, 0);
  EXPECT_EQ(SplitMaster(-infinity).high, 0xff80);
  // Finite, but nearer to 2^128 than to bf16's largest: an infinite weight and an exact master.
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(SplitMaster(largest).high, 0x7f80);
  EXPECT_EQ(JoinMaster(0x7f80, SplitMaster(largest).low), largest);
  // A NaN whose payload rounding would carry into an infinity or into the sign.
  EXPECT_EQ(SplitMaster(std::bit_cast<float>(0x7f800001u)).high, 0x7fc0);
  EXPECT_EQ(SplitMaster(std::bit_cast<float>(0x7fffffffu)).high, 0x7fff);
  EXPECT_EQ(SplitMaster(std::bit_cast<float>(0xffffffffu)).high, 0xffff);
  EXPECT_EQ(SplitMaster(std::bit_cast<float>(0xffffffffu)).low, 0);
  EXPECT_EQ(SplitMaster(-0.0f).high, 0x8000);
  // A tie goes away from zero on both sides.
  EXPECT_EQ(SplitMaster(std::bit_cast<float>(0x3f808000u)).high, 0x3f81);
  EXPECT_EQ(SplitMaster(std::bit_cast<float>(0xbf808000u)).high, 0xbf81);
}

TEST(SplitMasterTest, ArraysEqualElements) {
  std::vector<float> masters;
  for (uint32_t i = 0; i < 1000; ++i) masters.push_back(std::bit_cast<float>(i * 4294961u));
  std::vector<uint16_t> high(masters.size());
  std::vector<uint16_t> low(masters.size());
  std::vector<float> joined(masters.size());
  SplitMasters(masters.data(), masters.size(), high.data(), low.data());
  JoinMasters(high.data(), low.data(), masters.size(), joined.data());
  for (size_t i = 0; i < masters.size(); ++i) {
    EXPECT_EQ(high[i], SplitMaster(masters[i]).high);
    EXPECT_EQ(low[i], SplitMaster(masters[i]).low);
    EXPECT_EQ(std::bit_cast<uint32_t>(joined[i]),
              std::bit_cast<uint32_t>(JoinMaster(high[i], low[i])));
  }
}

}  // namespace
}  // namespace marea
