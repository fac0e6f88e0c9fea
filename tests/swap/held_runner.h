// Plans made by hand, of ops without bytes, and a runner that finishes an op when a test says so:
// with both, every order of events can be played through.
//
// Thread rule: one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "io/status.h"
#include "swap/op_runner.h"
#include "swap/step_plan.h"

namespace marea {

using Started = std::pair<uint32_t, uint64_t>;  // op, turn

inline Op MakeOp(Lane lane, std::vector<Wait> waits = {}, When when = When::kAlways) {
  Op op{.kind = OpKind::kForward, .lane = lane, .when = when};
  op.waits = std::move(waits);
  return op;
}

// Ops without bytes: order is all that matters here.
inline StepPlan MakePlan(std::vector<Op> ops) {
  StepPlan plan;
  plan.lane_depth.fill(1);
  for (Op& op : ops) {
    std::vector<uint32_t>& lane = plan.lane_ops[static_cast<size_t>(op.lane)];
    op.position = static_cast<uint32_t>(lane.size());
    lane.push_back(static_cast<uint32_t>(plan.ops.size()));
    plan.ops.push_back(std::move(op));
  }
  return plan;
}

inline uint32_t& Depth(StepPlan& plan, Lane lane) {
  return plan.lane_depth[static_cast<size_t>(lane)];
}

inline constexpr StepMask kTrain{.train = true, .micro_count = 1};

// Holds every op until the test finishes it.
class HeldRunner final : public OpRunner {
 public:
  void Start(const OpCall& call, Completion done) override {
    started_.emplace_back(call.op_index, call.turn);
    held_[{call.op_index, call.turn}] = std::move(done);
  }
  // What has started since the last call.
  std::vector<Started> TakeStarted() { return std::exchange(started_, {}); }
  void Finish(uint32_t op_index, uint64_t turn = 0, Status status = Status::Ok()) {
    auto node = held_.extract({op_index, turn});
    ASSERT_FALSE(node.empty()) << "op " << op_index << " of turn " << turn << " has not started";
    node.mapped()(std::move(status));
  }
  // A completion that stays, for a runner that breaks the contract.
  Completion held(uint32_t op_index) { return held_.at({op_index, 0}); }

 private:
  std::vector<Started> started_;
  std::map<Started, Completion> held_;
};

}  // namespace marea
