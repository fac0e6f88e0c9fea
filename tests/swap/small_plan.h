// A small but complete step plan for swapper tests, and the arithmetic that its engine does.
//
// Each trainable group is updated on the CPU chunk by chunk, its new weights go to a VRAM slot, a
// forward op checks them there; backward fetches them again, makes a partial sum, reduces it to the
// gradient and sends that home. Elements are 32-bit counters with a closed form, so every op can
// check every byte that it is given:
//   gradient of turn t        (t + 1) * (i + 1) + group
//   weight after t updates    i * 7 + group + sum of those gradients
//   moment after t updates    i * 3 + twice that sum
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "swap/op_runner.h"
#include "swap/shard_access.h"
#include "swap/step_plan.h"

namespace marea {

struct SmallPlanSpec {
  uint32_t group_count = 3;
  uint32_t chunk_count = 2;        // of each group
  uint64_t chunk_elements = 1500;  // 6000 bytes: pages are not full
  Space weight = Space::kFile;     // homes
  Space moment = Space::kFile;
  Space gradient = Space::kFile;
  bool first_group_frozen = false;
  uint32_t nvme_depth = 4;
};

inline constexpr ShardKind kSmallPlanKinds[] = {ShardKind::kWeight, ShardKind::kMoment1,
                                                ShardKind::kGradient};

// With waits derived and proved. A failed proof fails the calling test.
StepPlan MakeSmallPlan(const SmallPlanSpec& spec);

// The masks of a whole run: trains `turns` times, with an evaluation in the middle; the last turn
// applies the last gradients only.
std::vector<StepMask> SmallPlanMasks(uint32_t turns);

// Does what an engine op of the plan does to its spans; a byte that is not what it must be is
// Corrupt. Thread-safe where the plan is.
class SmallPlanEngine {
 public:
  SmallPlanEngine(const SmallPlanSpec& spec, const std::vector<StepMask>& masks);
  Status Run(const OpCall& call) const;

  // First contents of every home that has some, and their check at the end.
  Status Initialise(ShardAccess& access) const;
  Status CheckFinal(ShardAccess& access) const;

 private:
  Status RunUpdate(const OpCall& call) const;
  // Turns whose gradients are in the group's weights once turn `turn` has updated them.
  std::span<const uint64_t> Applied(uint32_t group, uint64_t turn) const;

  const SmallPlanSpec spec_;
  std::vector<uint32_t> updates_;        // by turn: updates done once its own is
  std::vector<uint64_t> trained_turns_;  // in order: which turns made gradients
};

}  // namespace marea
