#include "swap/plan_waits.h"

#include <fmt/format.h>

#include "swap/lane_order.h"
#include "swap/plan_cells.h"

namespace marea {
namespace {

constexpr int kTurnsMax = 8;

struct CellUse {
  Lane lane;
  int64_t position;  // absolute, over unrolled turns
};

// Who last wrote a cell, and who has read it since.
struct CellHistory {
  bool written = false;
  CellUse writer{};
  std::vector<CellUse> readers;
};

class Deriver {
 public:
  explicit Deriver(StepPlan& plan)
      : plan_(plan), cells_(plan), history_(cells_.count()), order_(plan.lane_depth) {}

  // One more turn of the loop; returns each op's waits in it.
  Result<std::vector<std::vector<Wait>>> Turn() {
    std::vector<std::vector<Wait>> waits(plan_.ops.size());
    for (uint32_t i = 0; i < plan_.ops.size(); ++i) {
      const Op& op = plan_.ops[i];
      LaneClock start = order_.BaseOf(op.lane);
      const LaneClock required = Required(i);
      const LaneClock base = start;
      for (int lane = 0; lane < kLaneCount; ++lane) {
        if (required[lane] <= base[lane] || Implied(lane, required, base)) continue;
        Join(start, order_.AtRetirement(static_cast<Lane>(lane), required[lane]));
        MAREA_ASSIGN_OR_RETURN(Wait wait, MakeWait(i, lane, required[lane]));
        waits[i].push_back(wait);
      }
      Record(i, {op.lane, order_.Append(op.lane, start)});
    }
    ++turn_;
    return waits;
  }

 private:
  // Per lane, the latest op that conflicts with this one.
  LaneClock Required(uint32_t op_index) const {
    LaneClock required;
    required.fill(-1);
    const auto need = [&](const CellUse& touch) {
      int64_t& position = required[static_cast<int>(touch.lane)];
      position = std::max(position, touch.position);
    };
    const std::vector<PlanCells::Range>& ranges = cells_.OfOp(op_index);
    for (size_t a = 0; a < ranges.size(); ++a) {
      for (uint32_t cell = ranges[a].begin; cell < ranges[a].end; ++cell) {
        if (history_[cell].written) need(history_[cell].writer);
        if (!Writes(plan_.ops[op_index].accesses[a].mode)) continue;
        for (const CellUse& reader : history_[cell].readers) need(reader);
      }
    }
    return required;
  }

  // Does waiting for another lane's required op already say that this lane has come far enough?
  bool Implied(int lane, const LaneClock& required, const LaneClock& base) const {
    for (int other = 0; other < kLaneCount; ++other) {
      if (other == lane || required[other] <= base[other]) continue;
      const LaneClock& known = order_.AtRetirement(static_cast<Lane>(other), required[other]);
      if (known[lane] >= required[lane]) return true;
    }
    return false;
  }

  Result<Wait> MakeWait(uint32_t op_index, int lane, int64_t absolute) const {
    const int64_t count = static_cast<int64_t>(plan_.lane_ops[lane].size());
    const int64_t steps_back = turn_ - absolute / count;
    if (steps_back > 1) {
      return Status::Failed(fmt::format("a wait of op {} ({}) reaches back {} turns", op_index,
                                        Describe(plan_, plan_.ops[op_index]), steps_back));
    }
    return Wait{static_cast<Lane>(lane), static_cast<uint32_t>(absolute % count),
                static_cast<uint8_t>(steps_back)};
  }

  // Reads first: an op that reads and writes a byte is its writer.
  void Record(uint32_t op_index, const CellUse& touch) {
    const std::vector<PlanCells::Range>& ranges = cells_.OfOp(op_index);
    const std::vector<Access>& accesses = plan_.ops[op_index].accesses;
    for (const bool writes : {false, true}) {
      for (size_t a = 0; a < ranges.size(); ++a) {
        if (Writes(accesses[a].mode) != writes) continue;
        for (uint32_t cell = ranges[a].begin; cell < ranges[a].end; ++cell) {
          if (writes) {
            history_[cell] = {true, touch, {}};
          } else {
            history_[cell].readers.push_back(touch);
          }
        }
      }
    }
  }

  StepPlan& plan_;
  PlanCells cells_;
  std::vector<CellHistory> history_;
  LaneOrder order_;
  int64_t turn_ = 0;
};

void NumberLanes(StepPlan& plan) {
  for (std::vector<uint32_t>& lane : plan.lane_ops) lane.clear();
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    std::vector<uint32_t>& lane = plan.lane_ops[static_cast<int>(plan.ops[i].lane)];
    plan.ops[i].position = static_cast<uint32_t>(lane.size());
    lane.push_back(i);
  }
}

}  // namespace

Status DeriveWaits(StepPlan& plan) {
  NumberLanes(plan);
  Deriver deriver(plan);
  std::vector<std::vector<Wait>> settled;
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    MAREA_ASSIGN_OR_RETURN(std::vector<std::vector<Wait>> waits, deriver.Turn());
    // The first turn has no turn before it, so two equal turns in a row are the steady state only
    // from the second on.
    if (turn >= 2 && waits == settled) {
      for (size_t i = 0; i < plan.ops.size(); ++i) plan.ops[i].waits = std::move(waits[i]);
      return Status::Ok();
    }
    settled = std::move(waits);
  }
  return Status::Failed(fmt::format("the waits did not settle within {} turns", kTurnsMax));
}

}  // namespace marea
