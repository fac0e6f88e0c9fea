// What is paged: shards, named by parameter group and kind, and the tiers where they rest.
//
// A *parameter group* is a unit of paging (usually one a block; tied weights are one group used by
// two blocks). A *shard* is what this rank owns of a group, of one kind. A *chunk* is a range of
// elements, the same for every kind of a group, never across groups: the unit of NVMe I/O and of
// optimizer work. Plain values.
#pragma once

#include <array>
#include <cstdint>

namespace marea {

enum class ShardKind : uint8_t {
  kWeight,      // what forward uses: bf16 high half of the master, or fp32
  kMasterLow,   // the 16 bits of the fp32 master that the bf16 weight lacks; absent in fp32
  kMoment1,     // AdamW's first moment, fp32
  kMoment2,     // AdamW's second moment, fp32
  kGradient,    // the held gradient, bf16 or fp32, summed over the step
  kPartial,     // fp32 gradient sum of the waves so far, one for each use of a group
  kActivation,  // a block's input, kept for the recompute in backward
  kScalar,      // norms, losses, coefficients: a few bytes, always in RAM
};
inline constexpr int kShardKindCount = 8;
// The kinds that belong to a group for the whole run and so have a home.
inline constexpr std::array kPersistentKinds = {ShardKind::kWeight, ShardKind::kMasterLow,
                                                ShardKind::kMoment1, ShardKind::kMoment2,
                                                ShardKind::kGradient};

enum class Tier : uint8_t { kVram, kRam, kNvme };
inline constexpr int kTierCount = 3;

const char* ShardKindName(ShardKind kind);  // "weight", "master_low", ...
const char* TierName(Tier tier);            // "vram", "ram", "nvme"

}  // namespace marea
