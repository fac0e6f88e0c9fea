#include "engine/data/data_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace marea {
namespace {

TEST(DataOrder, IsABijectionForEverySize) {
  std::vector<uint64_t> sizes;
  for (uint64_t n = 1; n <= 300; ++n) sizes.push_back(n);
  for (const uint64_t n : {1023, 1024, 1025, 4095, 4096, 4097, 65537, 100000}) sizes.push_back(n);
  for (const uint64_t n : sizes) {
    for (const uint64_t pass : {0, 1, 7}) {
      const DataOrder order(n, 42, pass);
      std::vector<bool> seen(n, false);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t at = order.At(i);
        ASSERT_LT(at, n);
        ASSERT_FALSE(seen[at]) << "n " << n << " pass " << pass << " position " << i;
        seen[at] = true;
      }
    }
  }
}

TEST(DataOrder, DependsOnSeedAndPassOnly) {
  const uint64_t n = 1000;
  const auto list = [&](uint64_t seed, uint64_t pass) {
    const DataOrder order(n, seed, pass);
    std::vector<uint64_t> at;
    for (uint64_t i = 0; i < n; ++i) at.push_back(order.At(i));
    return at;
  };
  EXPECT_EQ(list(1, 0), list(1, 0));
  std::set<std::vector<uint64_t>> different;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t pass = 0; pass < 10; ++pass) different.insert(list(seed, pass));
  }
  EXPECT_EQ(different.size(), 100u);
}

// Known answers: data order is part of what a resumed run relies on, so it may never change.
TEST(DataOrder, IsPinned) {
  const DataOrder order(63, 0, 0);
  std::vector<uint64_t> first;
  for (uint64_t i = 0; i < 8; ++i) first.push_back(order.At(i));
  const std::vector<uint64_t> expected = {2, 47, 11, 23, 26, 25, 19, 0};
  EXPECT_EQ(first, expected);
  EXPECT_EQ(DataOrder(uint64_t{1} << 40, 7, 3).At(123456789), 1068713311451u);
}

// Positions spread evenly: chi-squared of the first tenth over ten bins, averaged over passes. A
// random permutation gives about 9 (degrees of freedom) times 0.9; an order that clusters gives
// hundreds.
TEST(DataOrder, LooksShuffled) {
  const uint64_t n = 10000;
  double sum = 0;
  double fixed_points = 0;
  const int passes = 200;
  for (int pass = 0; pass < passes; ++pass) {
    const DataOrder order(n, 5, pass);
    double counts[10] = {};
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t at = order.At(i);
      if (i < n / 10) counts[at * 10 / n] += 1;
      fixed_points += at == i;
    }
    for (const double count : counts) sum += (count - 100) * (count - 100) / 100;
  }
  EXPECT_NEAR(sum / passes, 8.1, 1.5);
  EXPECT_NEAR(fixed_points / passes, 1.0, 0.4);  // a random permutation has one on average
}

TEST(DataOrder, SmallSizesReachEveryOrder) {
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const DataOrder order(4, seed, 0);
    orders.insert({order.At(0), order.At(1), order.At(2), order.At(3)});
  }
  EXPECT_EQ(orders.size(), 24u);
}

}  // namespace
}  // namespace marea
