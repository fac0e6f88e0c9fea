// What is known to have completed when an op starts: vector clocks over lanes.
//
// A clock holds, per lane, the highest absolute position known to be complete (-1: none). An op of
// a lane starts after the op before it in the lane has started and after the op `depth` places
// before it has retired; it knows all that those knew, and all that its waits knew. Retiring is in
// order, so an op's retirement also says that everything before it in the lane is complete.
//
// Vector clocks: Fidge 1988, Mattern 1989. Used while deriving waits and while checking them. Not
// thread safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "swap/step_plan.h"

namespace marea {

using LaneClock = std::array<int64_t, kLaneCount>;

inline void Join(LaneClock& into, const LaneClock& other) {
  for (int lane = 0; lane < kLaneCount; ++lane) into[lane] = std::max(into[lane], other[lane]);
}

class LaneOrder {
 public:
  explicit LaneOrder(const std::array<uint32_t, kLaneCount>& lane_depth) : depth_(lane_depth) {
    for (LaneClock& clock : start_) clock.fill(-1);
  }

  // What the lane's own order tells its next op.
  LaneClock BaseOf(Lane lane) const {
    const int l = static_cast<int>(lane);
    LaneClock clock = start_[l];
    const int64_t freed = Issued(lane) - static_cast<int64_t>(depth_[l]);
    if (freed >= 0) Join(clock, retired_[l][freed]);
    return clock;
  }

  // Appends the lane's next op, which starts knowing `start`; returns its absolute position.
  int64_t Append(Lane lane, const LaneClock& start) {
    const int l = static_cast<int>(lane);
    start_[l] = start;
    LaneClock retired = start;
    if (!retired_[l].empty()) Join(retired, retired_[l].back());
    const int64_t position = Issued(lane);
    retired[l] = position;
    retired_[l].push_back(retired);
    return position;
  }

  int64_t Issued(Lane lane) const {
    return static_cast<int64_t>(retired_[static_cast<int>(lane)].size());
  }

  // REQUIRES: 0 <= position < Issued(lane).
  const LaneClock& AtRetirement(Lane lane, int64_t position) const {
    return retired_[static_cast<int>(lane)][position];
  }

 private:
  std::array<uint32_t, kLaneCount> depth_;
  std::array<LaneClock, kLaneCount> start_;                 // of the lane's latest op
  std::array<std::vector<LaneClock>, kLaneCount> retired_;  // by absolute position
};

}  // namespace marea
