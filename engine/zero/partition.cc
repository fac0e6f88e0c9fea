#include "engine/zero/partition.h"

#include "io/check.h"
#include "io/units.h"

namespace marea {

bool IsPartitioned(const Partition& partition, const GroupShape& group, ShardKind kind) {
  if (partition.world_size == 1) return false;
  switch (kind) {
    case ShardKind::kWeight:
      return partition.stage == 3 && group.parameters > partition.persistence_threshold;
    case ShardKind::kMasterLow:
    case ShardKind::kMoment1:
    case ShardKind::kMoment2:
    case ShardKind::kGradient:
      return partition.stage >= 1;
    default:
      return false;  // sums of a wave, activations: each rank has its own
  }
}

ElementRange PartOf(const Partition& partition, const GroupShape& group, uint32_t rank) {
  MAREA_CHECK(group.elements % partition.world_size == 0, "a group is padded for its ranks");
  const uint64_t count = group.elements / partition.world_size;
  return {rank * count, count};
}

ElementRange OwnedRange(const Partition& partition, const GroupShape& group, ShardKind kind) {
  if (!IsPartitioned(partition, group, kind)) return {0, group.elements};
  return PartOf(partition, group, partition.rank);
}

void PadGroups(uint32_t world_size, ModelShape& model) {
  for (GroupShape& group : model.groups) {
    group.elements = RoundUp(group.elements, world_size * kGroupAlignElements);
  }
}

}  // namespace marea
