#include "src/bench/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace marea {

// Values below 2^kSubBits have a bucket each; above, the highest bit chooses a row of 2^kSubBits
// buckets and the next kSubBits bits the place in it.
uint32_t LatencyHistogram::BucketOf(uint64_t value) {
  constexpr uint64_t kExact = uint64_t{1} << kSubBits;
  if (value < kExact) return static_cast<uint32_t>(value);
  const auto row = static_cast<uint32_t>(std::bit_width(value)) - kSubBits;
  const auto place = static_cast<uint32_t>(value >> (row - 1)) - static_cast<uint32_t>(kExact);
  return (row << kSubBits) + place;
}

uint64_t LatencyHistogram::UpperEnd(uint32_t bucket) {
  constexpr uint64_t kExact = uint64_t{1} << kSubBits;
  if (bucket < kExact) return bucket;
  const uint32_t row = bucket >> kSubBits;
  const uint64_t place = bucket & (kExact - 1);
  return ((kExact + place + 1) << (row - 1)) - 1;
}

void LatencyHistogram::Add(uint64_t nanoseconds) {
  ++counts_[BucketOf(nanoseconds)];
  ++count_;
  max_ns_ = std::max(max_ns_, nanoseconds);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (uint32_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

void LatencyHistogram::Clear() {
  *this = LatencyHistogram();
}

uint64_t LatencyHistogram::PercentileNs(double share) const {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<uint64_t>(
      std::clamp(std::ceil(share * static_cast<double>(count_)), 1.0, static_cast<double>(count_)));
  uint64_t seen = 0;
  for (uint32_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen >= wanted) return std::min(UpperEnd(i), max_ns_);
  }
  return max_ns_;
}

}  // namespace marea
