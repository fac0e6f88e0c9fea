#include "engine/optim/gradient_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "engine/optim/split_master.h"
#include "engine/optim/worker_pool.h"
#include "tests/engine/optim/test_pool.h"

namespace marea {
namespace {

std::vector<float> RandomGradient(size_t elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> gradient(elements);
  // Magnitudes far apart, so that any change of order would show in the last bits.
  for (float& value : gradient) {
    value = std::ldexp(normal(random), static_cast<int>(random() % 24) - 12);
  }
  return gradient;
}

std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> bf16;
  for (const float value : values) bf16.push_back(SplitMaster(value).high);
  return bf16;
}

// The order that Note [Fixed blocks] promises, written out.
double ReferenceSum(const std::vector<float>& gradient) {
  double sum = 0.0;
  for (size_t block = 0; block < gradient.size(); block += 64) {
    double lane[8] = {};
    const size_t end = std::min(gradient.size(), block + 64);
    for (size_t i = block; i < end; ++i) {
      lane[i % 8] += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    }
    sum +=
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
  return sum;
}

uint64_t Bits(double value) {
  return std::bit_cast<uint64_t>(value);
}

TEST(GradientNormTest, EveryLevelAndLengthGivesTheReferencesBits) {
  const auto pool = MakePool(1);
  for (size_t elements = 0; elements <= 200; ++elements) {
    const std::vector<float> gradient = RandomGradient(elements, static_cast<uint32_t>(elements));
    const std::vector<uint16_t> bf16 = ToBf16(gradient);
    std::vector<float> widened;
    for (const uint16_t value : bf16) widened.push_back(FloatFromBf16(value));
    for (const SimdLevel level : AvailableSimdLevels()) {
      ASSERT_EQ(Bits(SumSquares(*pool, gradient.data(), elements, 0.0, level)),
                Bits(ReferenceSum(gradient)))
          << SimdLevelName(level) << ", " << elements;
      ASSERT_EQ(Bits(SumSquares(*pool, bf16.data(), elements, 0.0, level)),
                Bits(ReferenceSum(widened)))
          << SimdLevelName(level) << ", " << elements;
    }
  }
}

TEST(GradientNormTest, ChunksAndThreadsChangeNothing) {
  // More than one round of block sums, and a short block at the end.
  constexpr size_t kElements = (size_t{65536} + 5000) * 64 + 19;
  const std::vector<float> gradient = RandomGradient(kElements, 3);
  const std::vector<uint16_t> bf16 = ToBf16(gradient);
  const uint64_t expected = Bits(ReferenceSum(gradient));
  const SimdLevel level = DetectSimdLevel();
  double bf16_whole = 0.0;
  for (const int threads : {1, 3}) {
    const auto pool = MakePool(threads);
    EXPECT_EQ(Bits(SumSquares(*pool, gradient.data(), kElements, 0.0, level)), expected);
    const double bf16_sum = SumSquares(*pool, bf16.data(), kElements, 0.0, level);
    if (threads == 1) bf16_whole = bf16_sum;
    EXPECT_EQ(Bits(bf16_sum), Bits(bf16_whole));
    std::mt19937 random(static_cast<uint32_t>(threads));
    double sum = 0.0;
    double bf16_chunked = 0.0;
    for (size_t first = 0; first < kElements;) {
      const size_t chunk = std::min(kElements - first, (1 + random() % 9000) * 64);
      sum = SumSquares(*pool, gradient.data() + first, chunk, sum, level);
      bf16_chunked = SumSquares(*pool, bf16.data() + first, chunk, bf16_chunked, level);
      first += chunk;
    }
    EXPECT_EQ(Bits(sum), expected) << threads;
    EXPECT_EQ(Bits(bf16_chunked), Bits(bf16_whole)) << threads;
  }
}

TEST(GradientNormTest, HugeTinyAndSpecialValues) {
  const auto pool = MakePool(1);
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::bit_cast<float>(0xffc00001u);
  for (const SimdLevel level : AvailableSimdLevels()) {
    // Squares of the largest floats overflow fp32, and of the smallest vanish in it; not in double.
    std::vector<float> gradient(100, std::numeric_limits<float>::max());
    const double largest = std::numeric_limits<float>::max();
    EXPECT_DOUBLE_EQ(SumSquares(*pool, gradient.data(), 100, 0.0, level), 100 * largest * largest);
    gradient.assign(100, std::numeric_limits<float>::denorm_min());
    const double smallest = std::numeric_limits<float>::denorm_min();
    EXPECT_DOUBLE_EQ(SumSquares(*pool, gradient.data(), 100, 0.0, level),
                     100 * smallest * smallest);
    gradient[70] = -infinity;
    EXPECT_EQ(SumSquares(*pool, gradient.data(), 100, 0.0, level),
              std::numeric_limits<double>::infinity());
    gradient[3] = nan;
    const double poisoned = SumSquares(*pool, gradient.data(), 100, 0.0, level);
    EXPECT_EQ(Bits(poisoned), Bits(std::numeric_limits<double>::quiet_NaN()));
  }
}

}  // namespace
}  // namespace marea
