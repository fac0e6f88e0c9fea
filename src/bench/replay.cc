#include "src/bench/replay.h"

#include <algorithm>
#include <array>

#include "io/units.h"

namespace marea {
namespace {

bool IsTransfer(const Op& op) {
  return op.kind == OpKind::kRead || op.kind == OpKind::kWrite;
}

// A read names its source first, a write its destination last.
const Access& FileAccess(const Op& op) {
  return op.kind == OpKind::kRead ? op.accesses.front() : op.accesses.back();
}

uint64_t FileBegin(const StepPlan& plan, const Access& access) {
  return plan.buffers[access.buffer].offset + access.offset;
}

}  // namespace

// Lanes issue and retire in order; NVMe lanes have transfers in flight, the others finish an op as
// soon as its waits are met. A lane's ops are counted over all turns: op `p` of turn `t` is number
// `t * (ops of the lane) + p`.
class ReplayWorkload final : public Workload {
 public:
  explicit ReplayWorkload(const Replay& replay)
      : replay_(replay),
        mask_{.update = true, .train = true, .eval = false, .micro_count = replay.micro_count_} {
    for (int lane = 0; lane < kLaneCount; ++lane) {
      lanes_[lane].finished.assign(std::max<uint32_t>(1, plan().lane_depth[lane]), false);
    }
  }

  std::optional<BenchTransfer> Next() override {
    constexpr std::array kNvmeLanes = {Lane::kNvmeRead, Lane::kNvmeWrite};
    bool moved = true;
    while (moved) {
      moved = false;
      for (int lane = 0; lane < kLaneCount; ++lane) {
        if (!IsNvme(static_cast<Lane>(lane))) moved |= RunLane(static_cast<Lane>(lane));
      }
      for (size_t i = 0; i < kNvmeLanes.size(); ++i) {
        const Lane lane = kNvmeLanes[(first_ + i) % kNvmeLanes.size()];
        std::optional<BenchTransfer> transfer = Issue(lane, &moved);
        if (!transfer.has_value()) continue;
        first_ ^= 1;  // the other lane has the next turn
        return transfer;
      }
    }
    return std::nullopt;
  }

  void Done(const BenchTransfer& transfer) override {
    const Lane lane = transfer.direction == IoDirection::kRead ? Lane::kNvmeRead : Lane::kNvmeWrite;
    Finish(lane, transfer.id);
  }

  void EndAfterRound() override {
    uint64_t turn = 0;
    for (int lane = 0; lane < kLaneCount; ++lane) {
      const uint64_t ops = plan().lane_ops[lane].size();
      if (ops > 0) turn = std::max(turn, DivideRoundUp(lanes_[lane].issued, ops));
    }
    turns_max_ = std::max<uint64_t>(turn, 1);
  }

  bool ended() const override {
    if (turns_max_ == 0) return false;
    for (int lane = 0; lane < kLaneCount; ++lane) {
      const uint64_t ops = plan().lane_ops[lane].size();
      if (lanes_[lane].completed < turns_max_ * ops) return false;
    }
    return true;
  }

  uint64_t bytes_max() const override { return replay_.needs_.transfer_bytes_max; }

 private:
  struct LaneState {
    uint64_t issued = 0;
    uint64_t completed = 0;      // all before this one have finished
    std::vector<bool> finished;  // by number modulo the depth: out of order
  };

  const StepPlan& plan() const { return *replay_.plan_; }
  static bool IsNvme(Lane lane) { return lane == Lane::kNvmeRead || lane == Lane::kNvmeWrite; }
  LaneState& state(Lane lane) { return lanes_[static_cast<int>(lane)]; }

  // The lane's next op, if it may begin: room in the lane, turns left, waits met.
  const Op* Ready(Lane lane) {
    const LaneState& lane_state = state(lane);
    const std::vector<uint32_t>& ops = plan().lane_ops[static_cast<int>(lane)];
    if (ops.empty()) return nullptr;
    if (lane_state.issued - lane_state.completed >= lane_state.finished.size()) return nullptr;
    const uint64_t turn = lane_state.issued / ops.size();
    if (turns_max_ > 0 && turn >= turns_max_) return nullptr;
    const Op& op = plan().ops[ops[lane_state.issued % ops.size()]];
    for (const Wait& wait : op.waits) {
      if (wait.steps_back > turn) continue;
      const uint64_t count = plan().lane_ops[static_cast<int>(wait.lane)].size();
      const uint64_t number = (turn - wait.steps_back) * count + wait.position;
      if (state(wait.lane).completed <= number) return nullptr;
    }
    return &op;
  }

  // Finishes what a lane without I/O can do now.
  bool RunLane(Lane lane) {
    bool moved = false;
    while (Ready(lane) != nullptr) {
      Finish(lane, state(lane).issued++);
      moved = true;
    }
    return moved;
  }

  std::optional<BenchTransfer> Issue(Lane lane, bool* moved) {
    while (const Op* op = Ready(lane)) {
      const uint64_t number = state(lane).issued++;
      if (!Active(*op, mask_) || !IsTransfer(*op)) {
        Finish(lane, number);
        *moved = true;
        continue;
      }
      const Access& access = FileAccess(*op);
      const uint64_t begin = FileBegin(plan(), access);
      const Replay::Home& home = replay_.HomeOf(begin);
      const uint64_t first_page = (begin - home.begin) / kPageBytes;
      const uint64_t end_page = DivideRoundUp(begin - home.begin + access.bytes, kPageBytes);
      return BenchTransfer{
          .direction = op->kind == OpKind::kRead ? IoDirection::kRead : IoDirection::kWrite,
          .file = home.file,
          .offset = home.offset + first_page * kPageBytes,
          .bytes = (end_page - first_page) * kPageBytes,
          .id = number};
    }
    return std::nullopt;
  }

  void Finish(Lane lane, uint64_t number) {
    LaneState& lane_state = state(lane);
    const uint64_t depth = lane_state.finished.size();
    lane_state.finished[number % depth] = true;
    while (lane_state.completed < lane_state.issued &&
           lane_state.finished[lane_state.completed % depth]) {
      lane_state.finished[lane_state.completed % depth] = false;
      ++lane_state.completed;
    }
  }

  const Replay& replay_;
  const StepMask mask_;
  std::array<LaneState, kLaneCount> lanes_;
  size_t first_ = 0;        // which NVMe lane is asked first
  uint64_t turns_max_ = 0;  // 0: no end
};

Result<Replay> Replay::Make(const StepPlan& plan, uint32_t micro_count, uint32_t file_count) {
  Replay replay(plan, micro_count);
  const StepMask mask{.update = true, .train = true, .eval = false, .micro_count = micro_count};
  for (const Op& op : plan.ops) {
    if (!IsTransfer(op) || !Active(op, mask)) continue;
    const Access& access = FileAccess(op);
    const uint64_t begin = FileBegin(plan, access);
    replay.homes_.push_back({begin, begin + access.bytes, 0, 0});
    (op.kind == OpKind::kRead ? replay.needs_.read_bytes : replay.needs_.write_bytes) +=
        RoundUp(access.bytes, kPageBytes);
    // One more page, for a part of a home that begins within one.
    replay.needs_.transfer_bytes_max =
        std::max(replay.needs_.transfer_bytes_max, RoundUp(access.bytes, kPageBytes) + kPageBytes);
  }
  if (replay.homes_.empty()) {
    return Status::InvalidArgument(
        "the plan moves nothing between RAM and NVMe: there is nothing to replay");
  }
  for (const Lane lane : {Lane::kNvmeRead, Lane::kNvmeWrite}) {
    replay.needs_.in_flight_max += std::max<uint32_t>(1, plan.lane_depth[static_cast<int>(lane)]);
  }
  replay.DealOut(file_count);
  replay.needs_.file_write_bytes.assign(file_count, 0);
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kWrite || !Active(op, mask)) continue;
    const Access& access = FileAccess(op);
    const uint32_t file = replay.HomeOf(FileBegin(plan, access)).file;
    replay.needs_.file_write_bytes[file] += RoundUp(access.bytes, kPageBytes);
  }
  return replay;
}

// Ranges that share bytes are one home. Each home goes to the file that holds least.
void Replay::DealOut(uint32_t file_count) {
  std::sort(homes_.begin(), homes_.end(),
            [](const Home& a, const Home& b) { return a.begin < b.begin; });
  std::vector<Home> merged;
  for (const Home& home : homes_) {
    if (!merged.empty() && home.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, home.end);
    } else {
      merged.push_back(home);
    }
  }
  homes_ = std::move(merged);
  needs_.file_bytes.assign(file_count, 0);
  for (Home& home : homes_) {
    const auto least = std::min_element(needs_.file_bytes.begin(), needs_.file_bytes.end());
    home.file = static_cast<uint32_t>(least - needs_.file_bytes.begin());
    home.offset = *least;
    *least += RoundUp(home.end - home.begin, kPageBytes);
  }
}

const Replay::Home& Replay::HomeOf(uint64_t begin) const {
  const auto after =
      std::upper_bound(homes_.begin(), homes_.end(), begin,
                       [](uint64_t value, const Home& home) { return value < home.begin; });
  MAREA_CHECK(after != homes_.begin(), "a transfer without a home");
  return *std::prev(after);
}

std::unique_ptr<Workload> Replay::MakeWorkload() const {
  return std::make_unique<ReplayWorkload>(*this);
}

}  // namespace marea
