#include "engine/plan/shard_flow.h"

#include <algorithm>

namespace marea {

Op ShardFlow::Context(When when, uint32_t block, uint32_t micro) const {
  return Op{.kind = OpKind::kForward,
            .lane = Lane::kCompute,
            .when = when,
            .block = block,
            .micro = micro};
}

void ShardFlow::MakeHomes() {
  weight_ring_ = builder_.AddRing("weights", Space::kVram, spec_.weight_ring_bytes);
  accumulator_ring_ = builder_.AddRing("accumulators", Space::kVram, spec_.accumulator_ring_bytes);
  activation_ring_ = builder_.AddRing("activations", Space::kVram, spec_.activation_ring_bytes);
  optimizer_ring_ = builder_.AddRing("optimizer", Space::kVram, spec_.optimizer_ring_bytes);
  staging_ring_ = builder_.AddRing("staging", Space::kRam, spec_.staging_ring_bytes);
  for (uint32_t group = 0; group < model_.groups.size(); ++group) {
    for (const ShardKind kind : kPersistentKinds) {
      if (!HasShard(spec_, group, kind)) continue;
      homes_[{group, kind}] =
          builder_.Home(SpaceOf(spec_.placement.home(group, kind)), OwnedBytes(spec_, group, kind),
                        OwnedContent(group, kind));
    }
    if (!model_.groups[group].frozen) {
      norms_[group] = Scalar(ScalarName::kNorm, group, 0);
    }
  }
  coefficient_ = Scalar(ScalarName::kCoefficient, kNone, 0);
  for (uint32_t micro = 0; micro < spec_.micro_count; ++micro) {
    losses_.push_back(Scalar(ScalarName::kLoss, kNone, micro));
  }
  const Space kept = SpaceOf(spec_.placement.activation);
  for (uint32_t block = 1; block < model_.blocks.size(); ++block) {
    const bool last = block + 1 == model_.blocks.size();
    for (uint32_t i = 0; i < spec_.wave_size; ++i) {
      if (kept == Space::kVram || !last) {
        activation_homes_[{block, i}] = builder_.Home(kept, model_.blocks[block].input_bytes,
                                                      {ShardKind::kActivation, kNone, block, i});
      }
    }
  }
  for (uint32_t i = 0; i < spec_.wave_size; ++i) {
    gradients_.push_back(builder_.Home(Space::kVram, model_.blocks[1].input_bytes,
                                       {ShardKind::kActivation, kNone, kOutputGradient, i}));
  }
  std::vector<uint32_t> uses(model_.groups.size(), 0);
  for (uint32_t block = 0; block < model_.blocks.size(); ++block) {
    for (const uint32_t group : model_.blocks[block].groups) use_[{block, group}] = uses[group]++;
  }
  use_count_ = std::move(uses);
}

uint32_t ShardFlow::Scalar(ScalarName name, uint32_t group, uint32_t micro) {
  return builder_.Home(Space::kScalar, sizeof(double),
                       {ShardKind::kScalar, group, static_cast<uint32_t>(name), micro});
}

uint64_t ShardFlow::Elements(uint32_t group) const {
  return model_.groups[group].elements;
}

bool ShardFlow::Partitioned(uint32_t group, ShardKind kind) const {
  return IsPartitioned(spec_.partition, model_.groups[group], kind);
}

std::vector<Chunk> ShardFlow::ChunksOfPart(uint32_t group, uint32_t rank) const {
  const ElementRange part = PartOf(spec_.partition, model_.groups[group], rank);
  const auto count = static_cast<uint32_t>(DivideRoundUp(part.count, spec_.chunk_elements));
  std::vector<Chunk> chunks;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t first = i * spec_.chunk_elements;
    chunks.push_back({rank * count + i,
                      {part.first + first, std::min(spec_.chunk_elements, part.count - first)}});
  }
  return chunks;
}

std::vector<Chunk> ShardFlow::OwnChunks(uint32_t group, ShardKind kind) const {
  if (Partitioned(group, kind)) return ChunksOfPart(group, spec_.partition.rank);
  std::vector<Chunk> chunks;
  for (uint32_t rank = 0; rank < spec_.partition.world_size; ++rank) {
    for (const Chunk& chunk : ChunksOfPart(group, rank)) chunks.push_back(chunk);
  }
  return chunks;
}

std::vector<Chunk> ShardFlow::OtherChunks(uint32_t group) const {
  std::vector<Chunk> chunks;
  for (uint32_t rank = 0; rank < spec_.partition.world_size; ++rank) {
    if (rank == spec_.partition.rank) continue;
    for (const Chunk& chunk : ChunksOfPart(group, rank)) chunks.push_back(chunk);
  }
  return chunks;
}

Piece ShardFlow::RangeOf(uint32_t buffer, const ElementRange& elements,
                         uint64_t element_bytes) const {
  return {buffer, elements.first * element_bytes - builder_.buffer(buffer).content.first_byte,
          elements.count * element_bytes};
}

Piece ShardFlow::HomeChunk(uint32_t group, ShardKind kind, const Chunk& chunk) {
  return RangeOf(homes_.at({group, kind}), chunk.elements, ElementBytes(spec_, kind));
}

Content ShardFlow::OwnedContent(uint32_t group, ShardKind kind) const {
  Content content{kind, group};
  content.first_byte = OwnedRange(spec_, group, kind).first * ElementBytes(spec_, kind);
  return content;
}

Piece ShardFlow::ValueFor(uint32_t ring, const Piece& home, uint32_t batch) {
  Content content = builder_.buffer(home.buffer).content;
  content.first_byte += home.offset;
  return builder_.Whole(builder_.Value(ring, home.bytes, content, batch));
}

Piece ShardFlow::FetchToRam(const Piece& home, const Op& context, uint32_t batch) {
  const Space space = builder_.buffer(home.buffer).space;
  if (space == Space::kRam) return home;
  const Piece staged = ValueFor(staging_ring_, home, batch);
  builder_.EmitTransfer(space == Space::kFile ? OpKind::kRead : OpKind::kCopyOut, context, home,
                        staged);
  return staged;
}

void ShardFlow::ReturnFromRam(const Piece& home, const Piece& staged, const Op& context) {
  const Space space = builder_.buffer(home.buffer).space;
  if (space == Space::kRam) return;
  builder_.EmitTransfer(space == Space::kFile ? OpKind::kWrite : OpKind::kCopyIn, context, staged,
                        home);
}

void ShardFlow::FetchToVram(const Piece& home, const Piece& target, const Op& context) {
  const Piece source = FetchToRam(home, context, builder_.NewBatch());
  builder_.EmitTransfer(OpKind::kCopyIn, context, source, target);
}

void ShardFlow::ReturnFromVram(const Piece& home, const Piece& value, const Op& context) {
  const bool file = builder_.buffer(home.buffer).space == Space::kFile;
  const Piece in_ram = file ? ValueFor(staging_ring_, home, builder_.NewBatch()) : home;
  builder_.EmitTransfer(OpKind::kCopyOut, context, value, in_ram);
  if (file) builder_.EmitTransfer(OpKind::kWrite, context, in_ram, home);
}

Piece ShardFlow::NewActivation(uint32_t block, uint32_t i, uint32_t batch) {
  if (spec_.placement.activation == Tier::kVram) {
    return builder_.Whole(activation_homes_.at({block, i}));
  }
  return builder_.Whole(builder_.Value(activation_ring_, model_.blocks[block].input_bytes,
                                       {ShardKind::kActivation, kNone, block, i}, batch));
}

Piece ShardFlow::KeptActivation(uint32_t block, uint32_t i, const Op& context) {
  const Piece home = builder_.Whole(activation_homes_.at({block, i}));
  if (spec_.placement.activation == Tier::kVram) return home;
  const Piece value = NewActivation(block, i, builder_.NewBatch());
  builder_.EmitTransfer(OpKind::kCopyIn, context, home, value);
  return value;
}

uint32_t ShardFlow::PartialHome(uint32_t group, uint32_t use) {
  const auto [it, made] = partials_.try_emplace({group, use}, 0);
  if (made) {
    it->second = builder_.Home(SpaceOf(spec_.placement.partial), Elements(group) * 4,
                               {ShardKind::kPartial, group, use});
  }
  return it->second;
}

Piece ShardFlow::NewSum(uint32_t group, uint32_t use, uint32_t batch) {
  if (spec_.placement.partial == Tier::kVram) return builder_.Whole(PartialHome(group, use));
  return builder_.Whole(builder_.Value(accumulator_ring_, Elements(group) * 4,
                                       {ShardKind::kPartial, group, use}, batch));
}

Piece ShardFlow::FetchSum(uint32_t group, uint32_t use, Op context, uint32_t batch) {
  const Piece sum = NewSum(group, use, batch);
  if (spec_.placement.partial == Tier::kVram) return sum;
  context.group = group;
  for (const Chunk& chunk : OwnChunks(group, ShardKind::kPartial)) {
    context.chunk = chunk.index;
    FetchToVram(RangeOf(PartialHome(group, use), chunk.elements, 4),
                RangeOf(sum.buffer, chunk.elements, 4), context);
  }
  return sum;
}

void ShardFlow::SendHome(const Piece& value, uint32_t home, uint64_t element_bytes, uint32_t group,
                         const std::vector<Chunk>& chunks, Op context) {
  if (value.buffer == home) return;
  context.group = group;
  for (const Chunk& chunk : chunks) {
    context.chunk = chunk.index;
    ReturnFromVram(RangeOf(home, chunk.elements, element_bytes),
                   RangeOf(value.buffer, chunk.elements, element_bytes), context);
  }
}

}  // namespace marea
