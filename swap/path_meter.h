// What moves over one NVMe path, each way, and how long it was busy with it.
//
// Thread rule: OnBegin and OnEnd by whoever drives the path's store, Snapshot from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "io/block_device.h"
#include "io/mutex.h"

namespace marea {

// Totals since the start.
struct PathFlow {
  uint64_t bytes = 0;       // of transfers that have arrived
  double busy_seconds = 0;  // with at least one on its way
};

// By IoDirection.
using PathFlows = std::array<PathFlow, 2>;

class PathMeter {
 public:
  explicit PathMeter(std::function<double()> clock) : clock_(std::move(clock)) {}

  void OnBegin(IoDirection direction);
  // `bytes` is 0 for a transfer that failed. REQUIRES: an OnBegin of this direction.
  void OnEnd(IoDirection direction, uint64_t bytes);

  // A direction in the middle of a transfer counts up to now.
  PathFlows Snapshot() const;

 private:
  struct Way {
    PathFlow totals;
    uint64_t in_flight = 0;
    double busy_since = 0;
  };
  const std::function<double()> clock_;
  mutable Mutex mutex_;
  std::array<Way, 2> ways_ GUARDED_BY(mutex_){};
};

}  // namespace marea
