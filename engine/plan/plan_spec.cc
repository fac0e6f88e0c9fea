#include "engine/plan/plan_spec.h"

#include <algorithm>

#include "io/units.h"

namespace marea {

uint64_t ElementBytes(const PlanSpec& spec, ShardKind kind) {
  switch (kind) {
    case ShardKind::kWeight:
      return WeightBytes(spec.precision);
    case ShardKind::kMasterLow:
      return spec.precision == Precision::kBf16 ? 2 : 0;
    case ShardKind::kMoment1:
      return 4;
    case ShardKind::kMoment2:
      return 4;
    case ShardKind::kGradient:
      return WeightBytes(spec.gradient_precision);
    case ShardKind::kPartial:
      return 4;
    default:
      return 0;
  }
}

bool HasShard(const PlanSpec& spec, uint32_t group, ShardKind kind) {
  if (kind != ShardKind::kWeight && spec.model->groups[group].frozen) return false;
  return ElementBytes(spec, kind) > 0;
}

ElementRange OwnedRange(const PlanSpec& spec, uint32_t group, ShardKind kind) {
  return OwnedRange(spec.partition, spec.model->groups[group], kind);
}

uint64_t OwnedBytes(const PlanSpec& spec, uint32_t group, ShardKind kind) {
  return HasShard(spec, group, kind)
             ? OwnedRange(spec, group, kind).count * ElementBytes(spec, kind)
             : 0;
}

bool WeightsInPlace(const PlanSpec& spec, uint32_t group) {
  return spec.placement.home(group, ShardKind::kWeight) == Tier::kVram &&
         !IsPartitioned(spec.partition, spec.model->groups[group], ShardKind::kWeight);
}

RingMinimum MinimumRings(const PlanSpec& spec) {
  const ModelShape& model = *spec.model;
  const Placement& placement = spec.placement;
  // Weights and sums pass through VRAM whole, whatever this rank owns of them.
  const auto bytes_of = [&](uint32_t group, ShardKind kind) {
    return RoundUp(model.groups[group].elements * ElementBytes(spec, kind), kPageBytes);
  };
  RingMinimum minimum{};
  std::vector<uint32_t> uses(model.groups.size(), 0);
  for (const BlockShape& block : model.blocks) {
    for (const uint32_t group : block.groups) ++uses[group];
  }
  std::vector<bool> seen(model.groups.size(), false);
  for (const BlockShape& block : model.blocks) {
    uint64_t weights = 0;
    uint64_t accumulators = 0;
    for (const uint32_t group : block.groups) {
      const bool reduces = !seen[group];  // a group is reduced by the first block that uses it
      seen[group] = true;
      if (!WeightsInPlace(spec, group)) {
        weights += bytes_of(group, ShardKind::kWeight);
      }
      if (model.groups[group].frozen) continue;
      if (placement.partial != Tier::kVram) {
        accumulators += bytes_of(group, ShardKind::kPartial) * (reduces ? uses[group] : 1);
      }
      if (reduces && placement.home(group, ShardKind::kGradient) != Tier::kVram) {
        accumulators += RoundUp(OwnedBytes(spec, group, ShardKind::kGradient), kPageBytes);
      }
    }
    minimum.weight_bytes = std::max(minimum.weight_bytes, weights);
    minimum.accumulator_bytes = std::max(minimum.accumulator_bytes, accumulators);
  }
  // All kinds of one chunk are in RAM together for its update, or in VRAM all but the weight, which
  // has its slot.
  uint64_t chunk = 0;
  for (const ShardKind kind : kPersistentKinds) chunk += ElementBytes(spec, kind);
  minimum.staging_bytes = chunk * spec.chunk_elements;
  for (uint32_t group = 0; group < model.groups.size(); ++group) {
    if (!UpdatesOnGpu(spec, group) || model.groups[group].frozen) continue;
    uint64_t paged = 0;
    for (const ShardKind kind : kPersistentKinds) {
      if (kind == ShardKind::kWeight || placement.home(group, kind) == Tier::kVram) continue;
      paged += ElementBytes(spec, kind);
    }
    minimum.optimizer_bytes = std::max(minimum.optimizer_bytes, paged * spec.chunk_elements);
  }
  // A wave's inputs and outputs of one block; the inputs may lie in the middle.
  if (placement.activation == Tier::kRam) {
    minimum.activation_bytes =
        3 * spec.wave_size * RoundUp(model.blocks[1].input_bytes, kPageBytes);
  }
  return minimum;
}

}  // namespace marea
