// What ZeRO partitions over the ranks: the stage as a table (Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2020).
//
//     stage   optimizer states   gradients                            weights
//     0       replicated         reduce-scattered, then gathered      replicated
//     1, 2    partitioned        reduce-scattered                     replicated
//     3       partitioned        reduce-scattered                     partitioned
//
// Every stage reduce-scatters, so all sum in the same order and agree bit for bit. 1 and 2 are one:
// a gradient is reduced as soon as its block's backward ends, and only this rank's part is held.
//
// A group is cut into as many *parts* of equal length as there are ranks; part r is rank r's.
// Ranges are in elements of the group. Plain values; pure functions.
#pragma once

#include <cstdint>

#include "engine/model/model_shape.h"
#include "swap/shard.h"

namespace marea {

struct Partition {
  uint32_t world_size = 1;
  uint32_t rank = 0;
  uint32_t stage = 0;
  // Groups of at most so many parameters keep their weights whole at stage 3
  // (stage3_param_persistence_threshold): gathering them costs more than they take.
  uint64_t persistence_threshold = 0;
};

// Does each rank own but its part of such shards?
bool IsPartitioned(const Partition& partition, const GroupShape& group, ShardKind kind);

struct ElementRange {
  uint64_t first;
  uint64_t count;
};
// The part of rank `rank`. REQUIRES: the group is padded (PadGroups).
ElementRange PartOf(const Partition& partition, const GroupShape& group, uint32_t rank);

// What this rank owns of a shard.
ElementRange OwnedRange(const Partition& partition, const GroupShape& group, ShardKind kind);

// Pads every group so that all parts have the same length and whole pages in every kind. A group
// smaller than the world size becomes one padded page a rank. What is padding is zero and stays so.
void PadGroups(uint32_t world_size, ModelShape& model);

}  // namespace marea
