#include "tests/swap/small_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>

#include "io/units.h"
#include "swap/plan_check.h"
#include "swap/plan_waits.h"

namespace marea {
namespace {

constexpr uint64_t kElementBytes = 4;

class Builder {
 public:
  explicit Builder(const SmallPlanSpec& spec) : spec_(spec) {}

  StepPlan Build() {
    const uint64_t group_bytes = RoundUp(GroupBytes(), kPageBytes);
    const uint64_t chunk_bytes = RoundUp(ChunkBytes(), kPageBytes);
    weights_ = AddRing("weights", Space::kVram, 2 * group_bytes);
    sums_ = AddRing("accumulators", Space::kVram, 3 * group_bytes);
    staging_ = AddRing("staging", Space::kRam, 7 * chunk_bytes);
    for (uint32_t group = 0; group < spec_.group_count; ++group) {
      for (const ShardKind kind : kSmallPlanKinds) {
        if (kind == ShardKind::kWeight || !Frozen(group))
          homes_[{group, kind}] = AddHome(group, kind);
      }
    }
    for (uint32_t group = 0; group < spec_.group_count; ++group) Forward(group);
    for (uint32_t group = spec_.group_count; group-- > 0;) Backward(group);
    plan_.lane_depth.fill(1);
    plan_.lane_depth[static_cast<int>(Lane::kNvmeRead)] = spec_.nvme_depth;
    plan_.lane_depth[static_cast<int>(Lane::kNvmeWrite)] = spec_.nvme_depth;
    Status status = DeriveWaits(plan_);
    EXPECT_TRUE(status.ok()) << status.message();
    status = CheckPlan(plan_, 1);
    EXPECT_TRUE(status.ok()) << status.message();
    return std::move(plan_);
  }

 private:
  bool Frozen(uint32_t group) const { return spec_.first_group_frozen && group == 0; }
  uint64_t ChunkBytes() const { return spec_.chunk_elements * kElementBytes; }
  uint64_t GroupBytes() const { return spec_.chunk_count * ChunkBytes(); }

  uint64_t Take(Space space, uint64_t bytes) {
    uint64_t& top = plan_.space_bytes[static_cast<size_t>(space)];
    const uint64_t offset = top;
    top += RoundUp(bytes, kPageBytes);
    return offset;
  }
  uint32_t AddRing(const char* name, Space space, uint64_t bytes) {
    plan_.rings.push_back({name, space, Take(space, bytes), bytes});
    heads_.push_back(0);
    return static_cast<uint32_t>(plan_.rings.size()) - 1;
  }
  Space HomeSpace(ShardKind kind) const {
    if (kind == ShardKind::kWeight) return spec_.weight;
    return kind == ShardKind::kMoment1 ? spec_.moment : spec_.gradient;
  }
  uint32_t AddHome(uint32_t group, ShardKind kind) {
    const Space space = HomeSpace(kind);
    return Add({.space = space,
                .bytes = GroupBytes(),
                .offset = Take(space, GroupBytes()),
                .content = {.kind = kind, .group = group}});
  }
  uint32_t AddValue(uint32_t ring, uint64_t bytes, Content content) {
    const uint64_t whole = RoundUp(bytes, kPageBytes);
    if (heads_[ring] + whole > plan_.rings[ring].bytes) heads_[ring] = 0;
    const uint64_t offset = plan_.rings[ring].offset + heads_[ring];
    heads_[ring] += whole;
    return Add({plan_.rings[ring].space, bytes, offset, ring, content});
  }
  uint32_t Add(Buffer buffer) {
    plan_.buffers.push_back(buffer);
    return static_cast<uint32_t>(plan_.buffers.size()) - 1;
  }
  void Emit(OpKind kind, Lane lane, When when, uint32_t group, uint32_t chunk,
            std::vector<Access> accesses) {
    plan_.ops.push_back({.kind = kind,
                         .lane = lane,
                         .when = when,
                         .block = group,
                         .group = group,
                         .chunk = chunk,
                         .accesses = std::move(accesses)});
  }
  Access ChunkOf(uint32_t buffer, uint32_t chunk, AccessMode mode) const {
    return {buffer, chunk * ChunkBytes(), ChunkBytes(), mode};
  }
  Access All(uint32_t buffer, AccessMode mode) const {
    return {buffer, 0, plan_.buffers[buffer].bytes, mode};
  }

  // The chunk where the CPU can reach it.
  Access FetchToRam(uint32_t group, ShardKind kind, uint32_t chunk, When when) {
    const uint32_t home = homes_.at({group, kind});
    const Space space = plan_.buffers[home].space;
    if (space == Space::kRam) return ChunkOf(home, chunk, AccessMode::kRead);
    const uint32_t value = AddValue(
        staging_, ChunkBytes(), {.kind = kind, .group = group, .first_byte = chunk * ChunkBytes()});
    const bool file = space == Space::kFile;
    Emit(file ? OpKind::kRead : OpKind::kCopyOut, file ? Lane::kNvmeRead : Lane::kD2h, when, group,
         chunk, {ChunkOf(home, chunk, AccessMode::kRead), All(value, AccessMode::kWrite)});
    return All(value, AccessMode::kRead);
  }
  void SendHome(uint32_t group, ShardKind kind, uint32_t chunk, Access from, When when) {
    const uint32_t home = homes_.at({group, kind});
    const Space space = plan_.buffers[home].space;
    if (from.buffer == home) return;
    from.mode = AccessMode::kRead;
    const bool file = space == Space::kFile;
    Emit(file ? OpKind::kWrite : OpKind::kCopyIn, file ? Lane::kNvmeWrite : Lane::kH2d, when, group,
         chunk, {from, ChunkOf(home, chunk, AccessMode::kWrite)});
  }

  // Weights in VRAM: the home itself or a slot, updated on the way where asked.
  uint32_t Weights(uint32_t group, bool update, When when) {
    const bool resident = spec_.weight == Space::kVram;
    const uint32_t slot =
        resident ? homes_.at({group, ShardKind::kWeight})
                 : AddValue(weights_, GroupBytes(), {.kind = ShardKind::kWeight, .group = group});
    for (uint32_t chunk = 0; chunk < spec_.chunk_count; ++chunk) {
      Access source{};
      if (update && !Frozen(group)) {
        source = Update(group, chunk);
      } else if (!resident) {
        source = FetchToRam(group, ShardKind::kWeight, chunk, when);
      }
      if (resident) continue;
      source.mode = AccessMode::kRead;
      Emit(OpKind::kCopyIn, Lane::kH2d, when, group, chunk,
           {source, ChunkOf(slot, chunk, AccessMode::kWrite)});
    }
    return slot;
  }

  Access Update(uint32_t group, uint32_t chunk) {
    const bool resident = spec_.weight == Space::kVram;
    std::vector<Access> all;
    for (const ShardKind kind : kSmallPlanKinds) {
      const bool weight = kind == ShardKind::kWeight;
      all.push_back(
          FetchToRam(group, kind, chunk, weight && !resident ? When::kAlways : When::kIfUpdate));
      if (kind != ShardKind::kGradient) all.back().mode = AccessMode::kReadWrite;
    }
    Emit(OpKind::kUpdate, Lane::kCpu, When::kIfUpdate, group, chunk, all);
    SendHome(group, ShardKind::kWeight, chunk, all[0], When::kIfUpdate);
    SendHome(group, ShardKind::kMoment1, chunk, all[1], When::kIfUpdate);
    return all[0];
  }

  void Forward(uint32_t group) {
    const uint32_t slot = Weights(group, true, When::kIfForward);
    Emit(OpKind::kForward, Lane::kCompute, When::kIfForward, group, 0,
         {All(slot, AccessMode::kRead)});
  }

  void Backward(uint32_t group) {
    const uint32_t slot = Weights(group, false, When::kIfTrain);
    if (Frozen(group)) {
      Emit(OpKind::kBackward, Lane::kCompute, When::kIfTrain, group, 0,
           {All(slot, AccessMode::kRead)});
      return;
    }
    const uint32_t sum =
        AddValue(sums_, GroupBytes(), {.kind = ShardKind::kPartial, .group = group});
    Emit(OpKind::kBackward, Lane::kCompute, When::kIfTrain, group, 0,
         {All(slot, AccessMode::kRead), All(sum, AccessMode::kWrite)});
    const uint32_t home = homes_.at({group, ShardKind::kGradient});
    const bool resident = spec_.gradient == Space::kVram;
    const uint32_t held =
        resident ? home
                 : AddValue(sums_, GroupBytes(), {.kind = ShardKind::kGradient, .group = group});
    Emit(OpKind::kReduce, Lane::kCompute, When::kIfTrain, group, 0,
         {All(held, AccessMode::kWrite), All(sum, AccessMode::kRead)});
    if (resident) return;
    for (uint32_t chunk = 0; chunk < spec_.chunk_count; ++chunk) {
      Access to = ChunkOf(home, chunk, AccessMode::kWrite);
      if (spec_.gradient == Space::kFile) {
        to = All(
            AddValue(
                staging_, ChunkBytes(),
                {.kind = ShardKind::kGradient, .group = group, .first_byte = chunk * ChunkBytes()}),
            AccessMode::kWrite);
      }
      Emit(OpKind::kCopyOut, Lane::kD2h, When::kIfTrain, group, chunk,
           {ChunkOf(held, chunk, AccessMode::kRead), to});
      if (spec_.gradient == Space::kFile) {
        SendHome(group, ShardKind::kGradient, chunk, to, When::kIfTrain);
      }
    }
  }

  const SmallPlanSpec& spec_;
  StepPlan plan_;
  uint32_t weights_ = 0, sums_ = 0, staging_ = 0;
  std::vector<uint64_t> heads_;  // by ring
  std::map<std::pair<uint32_t, ShardKind>, uint32_t> homes_;
};

uint32_t Gradient(uint64_t turn, uint32_t group, uint64_t i) {
  return static_cast<uint32_t>((turn + 1) * (i + 1) + group);
}

// Element i of a shard once the gradients of these turns have been applied.
uint32_t Value(ShardKind kind, uint32_t group, uint64_t i, std::span<const uint64_t> turns) {
  uint32_t sum = 0;
  for (const uint64_t turn : turns) sum += Gradient(turn, group, i);
  if (kind == ShardKind::kMoment1) return static_cast<uint32_t>(i * 3) + 2 * sum;
  return static_cast<uint32_t>(i * 7 + group) + sum;
}

uint32_t Get(std::span<const std::byte> bytes, uint64_t i) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + i * kElementBytes, sizeof value);
  return value;
}
void Put(std::span<std::byte> bytes, uint64_t i, uint32_t value) {
  std::memcpy(bytes.data() + i * kElementBytes, &value, sizeof value);
}

Status Wrong(const OpCall& call, uint64_t i, uint32_t found, uint32_t wanted) {
  return Status::Corrupt(fmt::format("turn {}: {}: element {} is {}, not {}", call.turn,
                                     Describe(*call.plan, call.op()), i, found, wanted));
}

}  // namespace

StepPlan MakeSmallPlan(const SmallPlanSpec& spec) {
  return Builder(spec).Build();
}

std::vector<StepMask> SmallPlanMasks(uint32_t turns) {
  std::vector<StepMask> masks;
  for (uint32_t turn = 0; turn < turns; ++turn) {
    const bool pending = turn > 0 && masks.back().train;
    masks.push_back({.update = pending, .train = true, .eval = false, .micro_count = 1});
    if (turn == turns / 2) masks.push_back({.update = true, .eval = true, .micro_count = 1});
  }
  if (masks.back().train) masks.push_back({.update = true});
  return masks;
}

SmallPlanEngine::SmallPlanEngine(const SmallPlanSpec& spec, const std::vector<StepMask>& masks)
    : spec_(spec) {
  uint32_t updates = 0;
  for (uint64_t turn = 0; turn < masks.size(); ++turn) {
    updates += masks[turn].update ? 1 : 0;
    updates_.push_back(updates);
    if (masks[turn].train) trained_turns_.push_back(turn);
  }
}

std::span<const uint64_t> SmallPlanEngine::Applied(uint32_t group, uint64_t turn) const {
  const bool frozen = spec_.first_group_frozen && group == 0;
  return {trained_turns_.data(), frozen ? 0 : updates_[turn]};
}

Status SmallPlanEngine::RunUpdate(const OpCall& call) const {
  const auto weight = call.spans[0], moment = call.spans[1], gradient = call.spans[2];
  const Op& op = call.op();
  const uint64_t elements = gradient.size() / kElementBytes;
  const uint64_t turn = Applied(op.group, call.turn).back();
  for (uint64_t i = 0; i < elements; ++i) {
    const uint32_t wanted = Gradient(turn, op.group, op.chunk * elements + i);
    const uint32_t g = Get(gradient, i);
    if (g != wanted) return Wrong(call, i, g, wanted);
    Put(weight, i, Get(weight, i) + g);
    Put(moment, i, Get(moment, i) + 2 * g);
  }
  return Status::Ok();
}

Status SmallPlanEngine::Run(const OpCall& call) const {
  const Op& op = call.op();
  if (op.kind == OpKind::kUpdate) return RunUpdate(call);
  const std::span<const uint64_t> applied = Applied(op.group, call.turn);
  const uint64_t elements = call.spans[0].size() / kElementBytes;
  for (uint64_t i = 0; i < elements; ++i) {
    if (op.kind == OpKind::kReduce) {
      Put(call.spans[0], i, Get(call.spans[1], i));
      continue;
    }
    const uint32_t found = Get(call.spans[0], i);
    const uint32_t wanted = Value(ShardKind::kWeight, op.group, i, applied);
    if (found != wanted) return Wrong(call, i, found, wanted);
    if (call.spans.size() > 1) Put(call.spans[1], i, Gradient(call.turn, op.group, i));
  }
  return Status::Ok();
}

Status SmallPlanEngine::Initialise(ShardAccess& access) const {
  for (uint32_t group = 0; group < spec_.group_count; ++group) {
    for (const ShardKind kind : {ShardKind::kWeight, ShardKind::kMoment1}) {
      for (const ShardChunk& chunk : access.Chunks(kind, group)) {
        std::vector<std::byte> bytes(chunk.bytes);
        for (uint64_t i = 0; i < chunk.bytes / kElementBytes; ++i) {
          Put(bytes, i, Value(kind, group, chunk.first_byte / kElementBytes + i, {}));
        }
        MAREA_RETURN_IF_ERROR(access.Write(kind, group, chunk.first_byte, bytes));
      }
    }
  }
  return Status::Ok();
}

Status SmallPlanEngine::CheckFinal(ShardAccess& access) const {
  const uint64_t elements = spec_.chunk_count * spec_.chunk_elements;
  for (uint32_t group = 0; group < spec_.group_count; ++group) {
    const bool frozen = spec_.first_group_frozen && group == 0;
    for (const ShardKind kind : {ShardKind::kWeight, ShardKind::kMoment1}) {
      if (frozen && kind == ShardKind::kMoment1) continue;
      std::vector<std::byte> bytes(elements * kElementBytes);
      MAREA_RETURN_IF_ERROR(access.Read(kind, group, 0, bytes));
      const std::span<const uint64_t> applied = Applied(group, updates_.size() - 1);
      for (uint64_t i = 0; i < elements; ++i) {
        if (Get(bytes, i) == Value(kind, group, i, applied)) continue;
        return Status::Corrupt(fmt::format("{} of group {}, element {} is wrong at the end",
                                           ShardKindName(kind), group, i));
      }
    }
  }
  return Status::Ok();
}

}  // namespace marea
