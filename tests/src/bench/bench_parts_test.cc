// The stamps that a benchmark's bytes carry, its latencies, and the choice of a sweep.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "io/units.h"
#include "src/bench/latency_histogram.h"
#include "src/bench/page_stamps.h"
#include "src/bench/sweep.h"

namespace marea {
namespace {

constexpr uint64_t kPages = 16;

class PageStampsTest : public testing::Test {
 protected:
  PageStampsTest() : memory_(kPages * kPageBytes), stamps_(3, 64 * kPageBytes) {
    FillRandomPages(memory_, 1);
  }
  std::string Check(uint64_t offset, VerifyDepth depth) const {
    return stamps_.Verify(memory_, offset, depth, "drive/file").message();
  }

  std::vector<std::byte> memory_;
  PageStamps stamps_;
};

TEST_F(PageStampsTest, WhatIsStampedForAPlaceIsRightThere) {
  stamps_.Stamp(memory_, 8 * kPageBytes);
  EXPECT_EQ(Check(8 * kPageBytes, VerifyDepth::kBodies), "");
  // The same pages, for another place, without their bodies being read again.
  stamps_.Stamp(memory_, 40 * kPageBytes);
  EXPECT_EQ(Check(40 * kPageBytes, VerifyDepth::kBodies), "");
  EXPECT_NE(Check(8 * kPageBytes, VerifyDepth::kStamps).find("another place"), std::string::npos);
}

TEST_F(PageStampsTest, EveryFlippedBitIsSeen) {
  stamps_.Stamp(memory_, 0);
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const size_t at = random() % memory_.size();
    const auto bit = std::byte{static_cast<uint8_t>(1u << (random() % 8))};
    memory_[at] ^= bit;
    EXPECT_NE(Check(0, VerifyDepth::kBodies), "") << "byte " << at;
    memory_[at] ^= bit;
  }
  EXPECT_EQ(Check(0, VerifyDepth::kBodies), "");
}

TEST_F(PageStampsTest, ALostWriteIsSeenAndNamesFileAndOffset) {
  stamps_.Stamp(memory_, 4 * kPageBytes);
  const std::vector<std::byte> first = memory_;
  stamps_.Stamp(memory_, 4 * kPageBytes);
  memory_ = first;  // the second write never arrived
  const std::string text = Check(4 * kPageBytes, VerifyDepth::kStamps);
  EXPECT_NE(text.find("older bytes"), std::string::npos) << text;
  EXPECT_EQ(text.find("drive/file: the page at offset 16384"), 0u) << text;
}

TEST_F(PageStampsTest, AHoleIsSeen) {
  stamps_.Stamp(memory_, 0);
  std::fill(memory_.begin(), memory_.end(), std::byte{0});
  EXPECT_NE(Check(4 * kPageBytes, VerifyDepth::kStamps), "");
  const PageStamps first_file(0, 64 * kPageBytes);
  EXPECT_NE(first_file.Verify(memory_, 0, VerifyDepth::kStamps, "x").message(), "");
}

// What a drive, a host or a file system could shorten: equal words and equal pages.
TEST_F(PageStampsTest, BytesDoNotRepeat) {
  std::set<uint64_t> words;
  std::array<uint64_t, 256> counts{};
  for (size_t at = 0; at < memory_.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, memory_.data() + at, sizeof(word));
    words.insert(word);
  }
  for (const std::byte byte : memory_) ++counts[static_cast<uint8_t>(byte)];
  // All but the stamps' constant words differ.
  EXPECT_GE(words.size(), memory_.size() / 8 - 3 * kPages);
  double entropy_bits = 0;
  for (const uint64_t count : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(memory_.size());
    if (share > 0) entropy_bits -= share * std::log2(share);
  }
  EXPECT_GT(entropy_bits, 7.9);
}

TEST(LatencyHistogramTest, PercentilesAreWithinTwoPercent) {
  std::mt19937_64 random(3);
  std::vector<uint64_t> values;
  LatencyHistogram histogram;
  LatencyHistogram half;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t value = random() >> (random() % 60);  // every order of magnitude
    values.push_back(value);
    (i % 2 == 0 ? histogram : half).Add(value);
  }
  histogram.Merge(half);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(histogram.count(), values.size());
  EXPECT_EQ(histogram.max_ns(), values.back());
  for (const double share : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto exact = static_cast<double>(
        values[static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1]);
    const auto told = static_cast<double>(histogram.PercentileNs(share));
    EXPECT_GE(told, exact) << share;
    EXPECT_LE(told, exact * 1.02 + 1) << share;
  }
  histogram.Clear();
  EXPECT_EQ(histogram.PercentileNs(0.5), 0u);
}

TEST(SweepTest, TheGridLeavesRoomInTheFile) {
  EXPECT_EQ(SweepGrid(4 * kGiB).size(), 25u);
  for (const BenchShape& shape : SweepGrid(64 * kMiB)) {
    EXPECT_LE(shape.block_bytes * shape.queue_depth, 16 * kMiB);
  }
  EXPECT_FALSE(SweepGrid(64 * kMiB).empty());
}

TEST(SweepTest, OfEquallyFastShapesTheOneWithLeastInFlightIsBest) {
  const std::vector<SweepPoint> points = {
      {{256 * kKiB, 4}, {1.0e9, 1.0e9}},    // too slow
      {{256 * kKiB, 32}, {3.0e9, 1.95e9}},  // 8 MiB in flight
      {{kMiB, 8}, {2.95e9, 1.96e9}},        // 8 MiB in fewer requests
      {{kMiB, 32}, {3.02e9, 2.0e9}},        // the fastest, by less than 3%
      {{4 * kMiB, 64}, {3.0e9, 0.5e9}},     // fast in one workload only
  };
  const BenchShape best = BestPoint(points).shape;
  EXPECT_EQ(best.block_bytes, kMiB);
  EXPECT_EQ(best.queue_depth, 8u);
  EXPECT_EQ(AioSection(best),
            "\"aio\": {\"block_size\": 1048576, \"queue_depth\": 8, \"thread_count\": 1, "
            "\"single_submit\": false, \"overlap_events\": true}");
}

}  // namespace
}  // namespace marea
