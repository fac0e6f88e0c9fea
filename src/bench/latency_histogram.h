// Latencies counted in buckets that grow with the value: 64 to a power of two, so that a percentile
// is known to 1.6% from nanoseconds to hours, in fixed memory.
//
// Method: HdrHistogram (Tene). Plain value; one thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace marea {

class LatencyHistogram {
 public:
  void Add(uint64_t nanoseconds);
  void Merge(const LatencyHistogram& other);
  void Clear();

  uint64_t count() const { return count_; }
  uint64_t max_ns() const { return max_ns_; }
  // The latency that `share` (0 to 1) of all did not exceed; 0 if there is none.
  uint64_t PercentileNs(double share) const;

 private:
  static constexpr uint32_t kSubBits = 6;
  static constexpr uint32_t kBuckets = (64 - kSubBits + 1) << kSubBits;
  static uint32_t BucketOf(uint64_t value);
  static uint64_t UpperEnd(uint32_t bucket);

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
  uint64_t max_ns_ = 0;
};

}  // namespace marea
