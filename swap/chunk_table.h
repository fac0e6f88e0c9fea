// The table of what a drive holds: one entry for every chunk whose home is on NVMe.
//
// A pure function of the step plan: each kRead and kWrite op names, by its file access, one chunk
// of a home. A chunk's index in this table is its name for ChunkIo and the tier store; where its
// bytes lie on the drives is decided by store_layout.h.
//
// Plain values; any thread may read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "swap/shard.h"
#include "swap/step_plan.h"

namespace marea {

// A range of bytes of a shard, as it is named in messages.
struct ShardChunk {
  ShardKind kind = ShardKind::kWeight;
  uint32_t group = 0;
  uint32_t index = 0;       // kPartial: which use of the group
  uint32_t chunk = 0;       // ordinal within the shard
  uint64_t first_byte = 0;  // within the shard
  uint64_t bytes = 0;
  auto operator<=>(const ShardChunk&) const = default;
};

// "weight of group 3, chunk 2 (bytes 4096..8191)"; a partial's use is named too.
std::string Describe(const ShardChunk& chunk);

// Kinds that rest somewhere between ops and are followed by residency. Activations and scalars are
// not: they have one fixed place each.
constexpr bool IsTracked(ShardKind kind) {
  return kind != ShardKind::kActivation && kind != ShardKind::kScalar;
}

// Must the bytes outlive a crash? A gradient or partial is made anew by the step that is repeated.
constexpr bool SurvivesCommit(ShardKind kind) {
  return kind == ShardKind::kWeight || kind == ShardKind::kMasterLow ||
         kind == ShardKind::kMoment1 || kind == ShardKind::kMoment2;
}

struct ChunkEntry {
  ShardChunk id;
  bool updated = false;  // some op of the plan writes it (a frozen weight is written at start only)
};

// Sorted by group, chunk, kind, use: the optimizer fetches all kinds of a chunk together, so they
// lie side by side.
struct ChunkTable {
  std::vector<ChunkEntry> entries;

  // Index of the entry that begins at `first_byte` of the shard, if there is one.
  std::optional<uint32_t> Find(ShardKind kind, uint32_t group, uint32_t index,
                               uint64_t first_byte) const;
  uint64_t chunk_bytes_max() const;
};

// REQUIRES: every kRead/kWrite op has a kFile access to a home whose content names a tracked shard,
// and two ops that touch one chunk agree on its bytes (else the compiler is broken: aborts).
ChunkTable MakeChunkTable(const StepPlan& plan);

}  // namespace marea
