// A GPU's streams on the virtual clock: each lane's ops run one at a time and in order, each behind
// the ops of other device lanes that it waits for, and are launched ahead of that.
//
// Single-threaded.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "swap/device.h"
#include "swap/op_runner.h"
#include "swap/step_plan.h"
#include "tests/fakes/virtual_clock.h"

namespace marea {

class FakeStreams {
 public:
  FakeStreams(VirtualClock& clock, const LaunchDepth& depth) : clock_(clock), depth_(depth) {}

  bool Has(Lane lane) const { return depth_[static_cast<size_t>(lane)] > 0; }
  const LaunchDepth& depth() const { return depth_; }

  // Launches the op after `enqueueing` (but not before what its lane launches earlier), runs
  // `begin` when the stream gets to it and `end` that much later. `call` may be null: then the op
  // waits for nothing else.
  void Run(Lane lane, const OpCall* call, uint64_t enqueueing, uint64_t duration,
           std::function<void()> launched, std::function<void()> begin, std::function<void()> end) {
    Stream& stream = streams_[static_cast<size_t>(lane)];
    stream.free_to_launch = std::max(stream.free_to_launch, clock_.now() + enqueueing);
    OpCall copy = call == nullptr ? OpCall{} : *call;
    clock_.Schedule(stream.free_to_launch, [=, this, launched = std::move(launched),
                                            begin = std::move(begin), end = std::move(end)] {
      Stream& own = streams_[static_cast<size_t>(lane)];
      // A nanosecond after: what ends at a time has ended before anything begins at it.
      const uint64_t start = std::max(clock_.now(), std::max(own.end, EndOfWaits(copy)) + 1);
      own.end = start + duration;
      if (copy.plan != nullptr) own.ends[PositionOf(copy)] = own.end;
      clock_.Schedule(start, begin);
      clock_.Schedule(own.end, end);
      launched();
    });
  }

 private:
  struct Stream {
    uint64_t free_to_launch = 0;
    uint64_t end = 0;                   // of the last op launched
    std::map<uint64_t, uint64_t> ends;  // by absolute position
  };

  static uint64_t PositionOf(const OpCall& call) {
    const auto lane = static_cast<size_t>(call.op().lane);
    return call.turn * call.plan->lane_ops[lane].size() + call.op().position;
  }

  // When the last of the ops is done that this one waits for: the event recorded at or before the
  // position.
  uint64_t EndOfWaits(const OpCall& call) const {
    uint64_t end = 0;
    if (call.plan == nullptr) return end;
    for (const Wait& wait : call.op().waits) {
      const auto lane = static_cast<size_t>(wait.lane);
      if (depth_[lane] == 0 || call.turn < wait.steps_back) continue;
      const uint64_t position =
          (call.turn - wait.steps_back) * call.plan->lane_ops[lane].size() + wait.position;
      const auto after = streams_[lane].ends.upper_bound(position);
      if (after != streams_[lane].ends.begin()) end = std::max(end, std::prev(after)->second);
    }
    return end;
  }

  VirtualClock& clock_;
  const LaunchDepth depth_;
  std::array<Stream, kLaneCount> streams_;
};

}  // namespace marea
