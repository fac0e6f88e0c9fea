// What each lane moved and how long it was busy.
//
// Thread rule: every call from any thread; one short lock per lane, a few calls per op.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "io/mutex.h"
#include "swap/step_plan.h"

namespace marea {

struct LaneStats {
  uint64_t bytes = 0;         // of finished ops; 0 for lanes that move nothing
  uint64_t op_count = 0;      // finished
  double busy_seconds = 0.0;  // with at least one op in flight
};

using SwapSnapshot = std::array<LaneStats, kLaneCount>;

class SwapStats {
 public:
  // `now_seconds` is a monotonic clock; the default is the machine's.
  explicit SwapStats(std::function<double()> now_seconds = {});

  void OnStart(Lane lane);
  void OnFinish(Lane lane, uint64_t bytes);

  // Totals since the start; a lane in the middle of an op counts up to now.
  SwapSnapshot Snapshot() const;

 private:
  struct Meter {
    mutable Mutex mutex;
    LaneStats totals GUARDED_BY(mutex);
    uint64_t in_flight GUARDED_BY(mutex) = 0;
    double busy_since GUARDED_BY(mutex) = 0.0;
  };
  std::function<double()> now_seconds_;
  std::array<Meter, kLaneCount> meters_;
};

// `later - earlier`, lane by lane.
SwapSnapshot Difference(const SwapSnapshot& later, const SwapSnapshot& earlier);

}  // namespace marea
