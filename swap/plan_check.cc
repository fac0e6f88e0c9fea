#include "swap/plan_check.h"

#include <fmt/format.h>

#include "swap/lane_order.h"
#include "swap/plan_cells.h"

namespace marea {
namespace {

constexpr int kTurns = 3;

struct Seen {
  uint32_t op = kNone;
  int64_t position = -1;
};

// Per cell: the last writer, and per lane the last reader since (readers of one lane are ordered).
struct CellState {
  Seen writer;
  std::array<Seen, kLaneCount> readers;
};

Status Race(const StepPlan& plan, uint32_t later, uint32_t earlier) {
  return Status::Failed(fmt::format("race: [{}] does not wait for [{}]",
                                    Describe(plan, plan.ops[later]),
                                    Describe(plan, plan.ops[earlier])));
}

// What the op knows when it starts, by its lane and its waits.
Result<LaneClock> StartClock(const StepPlan& plan, const LaneOrder& order, const Op& op, int turn) {
  LaneClock clock = order.BaseOf(op.lane);
  for (const Wait& wait : op.waits) {
    const int64_t count = static_cast<int64_t>(plan.lane_ops[static_cast<int>(wait.lane)].size());
    const int64_t position = (turn - wait.steps_back) * count + wait.position;
    if (position < 0) continue;
    if (position >= order.Issued(wait.lane)) {
      return Status::Failed("waits for a later op, a deadlock: " + Describe(plan, op));
    }
    Join(clock, order.AtRetirement(wait.lane, position));
  }
  return clock;
}

// The earlier op that this access races with, or kNone.
uint32_t Unordered(const StepPlan& plan, const CellState& cell, AccessMode mode,
                   const LaneClock& known) {
  const auto ordered = [&](const Seen& seen) {
    return seen.op == kNone || known[static_cast<int>(plan.ops[seen.op].lane)] >= seen.position;
  };
  if (!ordered(cell.writer)) return cell.writer.op;
  if (!Writes(mode)) return kNone;
  for (const Seen& reader : cell.readers) {
    if (!ordered(reader)) return reader.op;
  }
  return kNone;
}

Status CheckTransferLengths(const StepPlan& plan) {
  for (const Op& op : plan.ops) {
    const bool transfer = op.kind == OpKind::kRead || op.kind == OpKind::kWrite ||
                          op.kind == OpKind::kCopyIn || op.kind == OpKind::kCopyOut;
    if (!transfer) continue;
    if (op.accesses.size() != 2 || op.accesses[0].bytes != op.accesses[1].bytes ||
        op.accesses[0].mode != AccessMode::kRead || op.accesses[1].mode != AccessMode::kWrite) {
      return Status::Failed("not a copy of equal lengths: " + Describe(plan, op));
    }
  }
  return Status::Ok();
}

Status CheckHomesApart(const StepPlan& plan) {
  std::array<std::vector<const Buffer*>, kSpaceCount> homes;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.ring == kHomeRing) homes[static_cast<int>(buffer.space)].push_back(&buffer);
  }
  for (std::vector<const Buffer*>& space : homes) {
    std::sort(space.begin(), space.end(),
              [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < space.size(); ++i) {
      if (space[i - 1]->offset + space[i - 1]->bytes > space[i]->offset) {
        return Status::Failed(fmt::format("two homes overlap at {} {}", SpaceName(space[i]->space),
                                          space[i]->offset));
      }
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckRaces(const StepPlan& plan) {
  const PlanCells cells(plan);
  std::vector<CellState> state(cells.count());
  LaneOrder order(plan.lane_depth);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (uint32_t i = 0; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      MAREA_ASSIGN_OR_RETURN(const LaneClock known, StartClock(plan, order, op, turn));
      const std::vector<PlanCells::Range>& ranges = cells.OfOp(i);
      for (size_t a = 0; a < ranges.size(); ++a) {
        for (uint32_t cell = ranges[a].begin; cell < ranges[a].end; ++cell) {
          const uint32_t other = Unordered(plan, state[cell], op.accesses[a].mode, known);
          if (other != kNone) return Race(plan, i, other);
        }
      }
      const int64_t position = order.Append(op.lane, known);
      for (size_t a = 0; a < ranges.size(); ++a) {
        for (uint32_t cell = ranges[a].begin; cell < ranges[a].end; ++cell) {
          if (Writes(op.accesses[a].mode)) {
            state[cell] = {.writer = {i, position}, .readers = {}};
          } else if (state[cell].writer.position != position || state[cell].writer.op != i) {
            state[cell].readers[static_cast<int>(op.lane)] = {i, position};
          }
        }
      }
    }
  }
  return Status::Ok();
}

Status CheckBounds(const StepPlan& plan) {
  for (const Buffer& buffer : plan.buffers) {
    uint64_t begin = 0;
    uint64_t end = plan.space_bytes[static_cast<int>(buffer.space)];
    if (buffer.ring != kHomeRing) {
      begin = plan.rings[buffer.ring].offset;
      end = std::min(end, begin + plan.rings[buffer.ring].bytes);
    }
    if (buffer.offset < begin || buffer.offset + buffer.bytes > end) {
      return Status::Failed(fmt::format("a buffer of {} bytes at {} {} lies outside [{}, {})",
                                        buffer.bytes, SpaceName(buffer.space), buffer.offset, begin,
                                        end));
    }
  }
  for (const Op& op : plan.ops) {
    for (const Access& access : op.accesses) {
      if (access.buffer >= plan.buffers.size() || access.bytes == 0 ||
          access.offset + access.bytes > plan.buffers[access.buffer].bytes) {
        return Status::Failed("an access outside its buffer: " + Describe(plan, op));
      }
    }
  }
  MAREA_RETURN_IF_ERROR(CheckTransferLengths(plan));
  return CheckHomesApart(plan);
}

Status CheckPlan(const StepPlan& plan, uint32_t micro_count) {
  MAREA_RETURN_IF_ERROR(CheckBounds(plan));
  MAREA_RETURN_IF_ERROR(CheckRaces(plan));
  const StepMask first{.train = true, .micro_count = micro_count};
  const StepMask steady{.update = true, .train = true, .micro_count = micro_count};
  const StepMask partial{.update = true, .train = true, .micro_count = 1};
  const StepMask evaluate{.update = true, .eval = true, .micro_count = micro_count};
  const StepMask evaluate_again{.eval = true, .micro_count = 1};
  const StepMask last{.update = true};
  const StepMask masks[] = {first,   steady, evaluate, evaluate_again, first, steady,
                            partial, steady, last};
  return CheckDefUse(plan, masks);
}

}  // namespace marea
