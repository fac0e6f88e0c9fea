// What each lane moved and how long it was busy: an observer of the executor.
//
// Thread rule: the executor calls the observer; Snapshot from any thread. One short lock per lane.
#pragma once

#include <array>
#include <cstdint>

#include "io/mutex.h"
#include "swap/executor.h"
#include "swap/step_plan.h"

namespace marea {

struct LaneStats {
  uint64_t bytes = 0;         // of finished ops; 0 for lanes that move nothing
  uint64_t op_count = 0;      // finished
  double busy_seconds = 0.0;  // with at least one op in flight
};

using SwapSnapshot = std::array<LaneStats, kLaneCount>;

class SwapStats final : public ExecutorObserver {
 public:
  // The plan outlives the statistics; `clock` is the executor's.
  SwapStats(const StepPlan& plan, ClockFunction clock);

  void OnBegin(uint32_t op_index, uint64_t turn, double seconds) override;
  void OnComplete(uint32_t op_index, uint64_t turn, double seconds) override;

  // Totals since the start; a lane in the middle of an op counts up to now.
  SwapSnapshot Snapshot() const;

 private:
  struct Meter {
    mutable Mutex mutex;
    LaneStats totals GUARDED_BY(mutex);
    uint64_t in_flight GUARDED_BY(mutex) = 0;
    double busy_since GUARDED_BY(mutex) = 0.0;
  };
  const StepPlan& plan_;
  const ClockFunction clock_;
  std::array<Meter, kLaneCount> meters_;
};

// `later - earlier`, lane by lane.
SwapSnapshot Difference(const SwapSnapshot& later, const SwapSnapshot& earlier);

}  // namespace marea
