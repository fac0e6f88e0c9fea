#include "src/bench/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "io/check.h"
#include "io/units.h"

namespace marea {
namespace {

uint64_t BytesInFlight(const BenchShape& shape) {
  return shape.block_bytes * shape.queue_depth;
}

}  // namespace

std::vector<BenchShape> SweepGrid(uint64_t file_bytes) {
  std::vector<BenchShape> shapes;
  for (const uint64_t block_bytes : {256 * kKiB, 512 * kKiB, kMiB, 2 * kMiB, 4 * kMiB}) {
    for (const uint32_t queue_depth : {4u, 8u, 16u, 32u, 64u}) {
      const BenchShape shape{block_bytes, queue_depth};
      if (BytesInFlight(shape) <= file_bytes / 4) shapes.push_back(shape);
    }
  }
  return shapes;
}

SweepPoint BestPoint(std::span<const SweepPoint> points) {
  MAREA_CHECK(!points.empty(), "nothing was swept");
  constexpr double kNear = 0.97;
  std::vector<double> fastest(points.front().bytes_per_second.size(), 0);
  for (const SweepPoint& point : points) {
    for (size_t i = 0; i < fastest.size(); ++i) {
      fastest[i] = std::max(fastest[i], point.bytes_per_second[i]);
    }
  }
  const auto share = [&](const SweepPoint& point) {
    double slowest = 1;
    for (size_t i = 0; i < fastest.size(); ++i) {
      if (fastest[i] > 0) slowest = std::min(slowest, point.bytes_per_second[i] / fastest[i]);
    }
    return slowest;
  };
  double best_share = 0;
  for (const SweepPoint& point : points) best_share = std::max(best_share, share(point));
  const SweepPoint* best = nullptr;
  for (const SweepPoint& point : points) {
    if (share(point) < kNear * best_share) continue;
    const auto rank = [](const SweepPoint& p) {
      return std::pair(BytesInFlight(p.shape), UINT64_MAX - p.shape.block_bytes);
    };
    if (best == nullptr || rank(point) < rank(*best)) best = &point;
  }
  return *best;
}

std::string AioSection(const BenchShape& shape) {
  return fmt::format(
      "\"aio\": {{\"block_size\": {}, \"queue_depth\": {}, \"thread_count\": 1, \"single_submit\": "
      "false, \"overlap_events\": true}}",
      shape.block_bytes, shape.queue_depth);
}

}  // namespace marea
