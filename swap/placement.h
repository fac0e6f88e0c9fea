// The home of every shard: the tier where it rests between uses. Chosen before the step
// (engine/plan/planner.h), fixed for the whole run. Plain values.
#pragma once

#include <array>
#include <vector>

#include "swap/shard.h"

namespace marea {

struct Placement {
  // By group, by kind in the order of kPersistentKinds.
  std::vector<std::array<Tier, kPersistentKinds.size()>> homes;
  Tier partial = Tier::kRam;      // sums of a wave that wait for the next wave or use
  Tier activation = Tier::kVram;  // block inputs kept for backward: kVram or kRam

  Tier home(uint32_t group, ShardKind kind) const { return homes[group][static_cast<int>(kind)]; }
  Tier& home(uint32_t group, ShardKind kind) { return homes[group][static_cast<int>(kind)]; }
};

}  // namespace marea
