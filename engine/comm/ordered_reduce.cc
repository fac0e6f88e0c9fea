#include "engine/comm/ordered_reduce.h"

#include <algorithm>

namespace marea {
namespace {

// Stays in the first cache while one rank after the other is added.
constexpr size_t kStripe = 2048;

void Add(float* sum, const float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += values[i];
}

}  // namespace

void SumInRankOrder(std::span<float> own, const float* others, uint32_t rank, uint32_t ranks) {
  float sum[kStripe];
  for (size_t start = 0; start < own.size(); start += kStripe) {
    const size_t count = std::min(kStripe, own.size() - start);
    const float* next = others + start;
    for (uint32_t from = 0; from < ranks; ++from) {
      const float* values = own.data() + start;
      if (from != rank) {
        values = next;
        next += own.size();
      }
      if (from == 0) {
        std::copy_n(values, count, sum);
      } else {
        Add(sum, values, count);
      }
    }
    std::copy_n(sum, count, own.data() + start);
  }
}

size_t ReducePieceElements(uint32_t ranks, uint64_t scratch_bytes) {
  if (ranks < 2) return 0;
  const uint64_t bytes = scratch_bytes / (2 * (ranks - 1));
  constexpr uint64_t kLine = 64;
  return std::max<uint64_t>(bytes / kLine * kLine, kLine) / sizeof(float);
}

}  // namespace marea
