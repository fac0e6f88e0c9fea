#include "engine/plan/weight_flow.h"

#include <optional>

namespace marea {

uint32_t WeightFlow::WeightsFor(uint32_t group, Op context, bool update, uint32_t batch) {
  const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kWeight);
  const uint32_t home = homes_.at({group, ShardKind::kWeight});
  const uint32_t slot = WeightsInPlace(spec_, group)
                            ? home
                            : builder_.Value(weight_ring_, Elements(group) * element_bytes,
                                             {ShardKind::kWeight, group}, batch);
  context.group = group;
  const bool changes = update && !model_.groups[group].frozen;
  if (Partitioned(group, ShardKind::kWeight)) {
    BringWeights(group, OwnChunks(group, ShardKind::kWeight), slot, changes, context);
    const bool in_vram = builder_.buffer(home).space == Space::kVram;
    EmitGather(group, ShardKind::kWeight, in_vram ? home : slot, slot, context);
  } else if (changes && Partitioned(group, ShardKind::kMoment1)) {
    Op own = context;  // the replicas follow an update in a turn without a forward too
    own.when = When::kAlways;
    BringWeights(group, ChunksOfPart(group, spec_.partition.rank), slot, changes, own);
    RefreshOthers(group, home, slot, context);
  } else {
    BringWeights(group, OwnChunks(group, ShardKind::kWeight), slot, changes, context);
  }
  return slot;
}

void WeightFlow::BringWeights(uint32_t group, const std::vector<Chunk>& chunks, uint32_t slot,
                              bool changes, Op context) {
  const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kWeight);
  const bool in_vram = spec_.placement.home(group, ShardKind::kWeight) == Tier::kVram;
  for (const Chunk& chunk : chunks) {
    context.chunk = chunk.index;
    const Piece home = HomeChunk(group, ShardKind::kWeight, chunk);
    const Piece target = in_vram ? home : RangeOf(slot, chunk.elements, element_bytes);
    if (changes && UpdatesOnGpu(spec_, group)) {
      EmitGpuUpdate(group, chunk, context, target);
      continue;
    }
    std::optional<Piece> updated;
    if (changes) updated = EmitUpdate(group, chunk, context);
    if (in_vram) continue;
    const Piece source = updated ? *updated : FetchToRam(home, context, builder_.NewBatch());
    builder_.EmitTransfer(OpKind::kCopyIn, context, source, target);
  }
}

void WeightFlow::RefreshOthers(uint32_t group, uint32_t home, uint32_t slot, Op context) {
  const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kWeight);
  const std::vector<Chunk> others = OtherChunks(group);
  if (slot != home) {
    context.when = When::kIfNoUpdate;
    for (const Chunk& chunk : others) {
      context.chunk = chunk.index;
      FetchToVram(RangeOf(home, chunk.elements, element_bytes),
                  RangeOf(slot, chunk.elements, element_bytes), context);
    }
  }
  context.when = When::kIfUpdate;
  EmitGather(group, ShardKind::kWeight, slot, slot, context);
  SendHome(builder_.Whole(slot), home, element_bytes, group, others, context);
}

void WeightFlow::EmitGather(uint32_t group, ShardKind kind, uint32_t own, uint32_t whole,
                            Op context) {
  const ElementRange part = PartOf(spec_.partition, model_.groups[group], spec_.partition.rank);
  context.kind = OpKind::kGather;
  context.lane = Lane::kComm;
  context.group = group;
  context.chunk = 0;
  context.accesses = {ReadOf(RangeOf(own, part, ElementBytes(spec_, kind))),
                      WriteOf(builder_.Whole(whole))};
  builder_.Emit(std::move(context));
}

template <typename Fetch>
std::vector<std::pair<Piece, Piece>> WeightFlow::EmitOptimizer(uint32_t group, const Chunk& chunk,
                                                               Op context, Lane lane, Fetch fetch) {
  const bool resident = spec_.placement.home(group, ShardKind::kWeight) == Tier::kVram;
  Op update = context;
  update.kind = OpKind::kUpdate;
  update.lane = lane;
  update.when = When::kIfUpdate;
  std::vector<std::pair<Piece, Piece>> changed;
  for (const ShardKind kind : kPersistentKinds) {
    if (!HasShard(spec_, group, kind)) continue;
    // The weights go on to VRAM in turns without an update too, unless they rest there.
    context.when = kind == ShardKind::kWeight && !resident ? When::kAlways : When::kIfUpdate;
    const Piece home = HomeChunk(group, kind, chunk);
    const Piece value = fetch(kind, home, context);
    if (kind == ShardKind::kGradient) {
      update.accesses.push_back(ReadOf(value));
    } else {
      update.accesses.push_back(ReadWriteOf(value));
      changed.emplace_back(home, value);
    }
  }
  update.accesses.push_back(ReadOf(builder_.Whole(coefficient_)));
  builder_.Emit(std::move(update));
  return changed;
}

Piece WeightFlow::EmitUpdate(uint32_t group, const Chunk& chunk, Op context) {
  const uint32_t batch = builder_.NewBatch();
  const auto changed = EmitOptimizer(group, chunk, context, Lane::kCpu,
                                     [&](ShardKind, const Piece& home, const Op& fetching) {
                                       return FetchToRam(home, fetching, batch);
                                     });
  context.when = When::kIfUpdate;
  for (const auto& [home, staged] : changed) ReturnFromRam(home, staged, context);
  return changed.front().second;
}

void WeightFlow::EmitGpuUpdate(uint32_t group, const Chunk& chunk, Op context,
                               const Piece& weight) {
  const uint32_t batch = builder_.NewBatch();
  const auto in_place = [&](const Piece& home) {
    return builder_.buffer(home.buffer).space == Space::kVram;
  };
  const auto changed = EmitOptimizer(
      group, chunk, context, Lane::kCompute,
      [&](ShardKind kind, const Piece& home, const Op& fetching) {
        if (in_place(home)) return home;
        const Piece value =
            kind == ShardKind::kWeight ? weight : ValueFor(optimizer_ring_, home, batch);
        FetchToVram(home, value, fetching);
        return value;
      });
  context.when = When::kIfUpdate;
  for (const auto& [home, value] : changed) {
    if (!in_place(home)) ReturnFromVram(home, value, context);
  }
}

}  // namespace marea
