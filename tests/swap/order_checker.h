// Watches an executor and checks its order by bookkeeping of its own: every lane runs the plan's
// ops in the plan's order, turn after turn, skips exactly those that the mask skips, keeps to its
// depth, and starts nothing before its waits are met. Also sums up all that happened, and when, in
// one number: two runs with the same number took the same course.
//
// Thread rule: the executor calls it under its lock; read it after Drain.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "swap/device.h"
#include "swap/executor.h"
#include "swap/step_plan.h"

namespace marea {

class OrderChecker : public ExecutorObserver {
 public:
  // `plan` outlives the checker. `masks` are those of the turns, in order.
  OrderChecker(const StepPlan& plan, std::vector<StepMask> masks, const LaunchDepth& depth = {})
      : plan_(plan), masks_(std::move(masks)), launch_depth_(depth) {}

  void OnIssue(uint32_t op_index, uint64_t turn, double seconds, bool ran) override {
    Note(op_index, turn, seconds, ran ? 1 : 2);
    const Op& op = plan_.ops[op_index];
    LaneState& lane = lanes_[static_cast<size_t>(op.lane)];
    const std::vector<uint32_t>& ops = plan_.lane_ops[static_cast<size_t>(op.lane)];
    const uint64_t absolute = lane.issued++;
    if (ops[absolute % ops.size()] != op_index || absolute / ops.size() != turn) {
      Fail(op, turn, "is not the lane's next op");
    }
    if (turn >= masks_.size() || ran != Active(op, masks_[turn])) {
      Fail(op, turn, "is run or skipped against the mask");
    }
    const uint32_t launches = launch_depth_[static_cast<size_t>(op.lane)];
    const uint32_t depth = launches > 0 ? launches : plan_.lane_depth[static_cast<size_t>(op.lane)];
    if (lane.issued - lane.retired > depth) Fail(op, turn, "exceeds the depth of its lane");
    for (const Wait& wait : op.waits) {
      const bool on_device = launches > 0 && launch_depth_[static_cast<size_t>(wait.lane)] > 0;
      if (!on_device && !Met(wait, turn)) Fail(op, turn, "is issued before a wait is met");
    }
    lane.done.push_back(false);
    if (ran) {
      ++in_flight_;
    } else {
      MarkDone(lane, absolute);
    }
  }

  void OnBegin(uint32_t op_index, uint64_t turn, double seconds) override {
    Note(op_index, turn, seconds, 4);
    const Op& op = plan_.ops[op_index];
    for (const Wait& wait : op.waits) {
      if (!Met(wait, turn)) Fail(op, turn, "begins before a wait is met");
    }
  }

  void OnComplete(uint32_t op_index, uint64_t turn, double seconds) override {
    Note(op_index, turn, seconds, 3);
    const Op& op = plan_.ops[op_index];
    const size_t lane = static_cast<size_t>(op.lane);
    const uint64_t absolute = turn * plan_.lane_ops[lane].size() + op.position;
    if (absolute < lanes_[lane].retired || absolute >= lanes_[lane].issued) {
      Fail(op, turn, "completes and is not in flight");
      return;
    }
    --in_flight_;
    ++completed_;
    MarkDone(lanes_[lane], absolute);
  }

  const std::string& failure() const { return failure_; }  // the first; empty: none
  uint64_t hash() const { return hash_; }
  uint64_t in_flight() const { return in_flight_; }
  uint64_t completed() const { return completed_; }  // ops that ran
  uint64_t issued(Lane lane) const { return lanes_[static_cast<size_t>(lane)].issued; }

  // Has every lane gone through all its ops of every turn?
  bool AllDone() const {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (lanes_[lane].retired != masks_.size() * plan_.lane_ops[lane].size()) return false;
    }
    return true;
  }

  // The op at which each lane stands, one a line: what to read after a hang.
  std::string Standing() const {
    std::string text;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      const std::vector<uint32_t>& ops = plan_.lane_ops[lane];
      if (ops.empty() || lanes_[lane].issued >= masks_.size() * ops.size()) continue;
      text += fmt::format("\nturn {}: {}", lanes_[lane].issued / ops.size(),
                          Describe(plan_, plan_.ops[ops[lanes_[lane].issued % ops.size()]]));
    }
    return text;
  }

 private:
  struct LaneState {
    uint64_t issued = 0;
    uint64_t retired = 0;
    std::deque<bool> done;
  };

  bool Met(const Wait& wait, uint64_t turn) const {
    if (wait.steps_back > turn) return true;  // there is no turn before the first
    const size_t lane = static_cast<size_t>(wait.lane);
    const uint64_t needed =
        (turn - wait.steps_back) * plan_.lane_ops[lane].size() + wait.position + 1;
    return lanes_[lane].retired >= needed;
  }

  static void MarkDone(LaneState& lane, uint64_t absolute) {
    lane.done[absolute - lane.retired] = true;
    while (!lane.done.empty() && lane.done.front()) {
      lane.done.pop_front();
      ++lane.retired;
    }
  }

  void Note(uint32_t op_index, uint64_t turn, double seconds, uint64_t what) {
    for (const uint64_t value :
         {uint64_t{op_index}, turn, static_cast<uint64_t>(seconds * 1e9 + 0.5), what}) {
      hash_ = (hash_ ^ value) * 0x100000001b3;  // FNV-1a, a word at a time
    }
  }

  void Fail(const Op& op, uint64_t turn, const char* what) {
    if (failure_.empty())
      failure_ = fmt::format("turn {}, {}: {}", turn, what, Describe(plan_, op));
  }

  const StepPlan& plan_;
  const std::vector<StepMask> masks_;
  const LaunchDepth launch_depth_;
  std::array<LaneState, kLaneCount> lanes_;
  std::string failure_;
  uint64_t hash_ = 0xcbf29ce484222325;
  uint64_t in_flight_ = 0;
  uint64_t completed_ = 0;
};

}  // namespace marea
