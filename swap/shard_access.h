// Direct access to homes, whatever their tier, before the first step and after the last:
// initialisation streams every chunk to its home, export reads it back.
//
// Owner: the trainer. Thread rule: one thread; only while no op of a plan is in flight. Blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/status.h"
#include "swap/swapper.h"

namespace marea {

// Base of the arena of each space, by Space; kFile and spaces without homes may be empty.
using ArenaSpans = std::array<std::span<std::byte>, kSpaceCount>;

class ShardAccess {
 public:
  // `bounce` carries NVMe chunks: page aligned, whole pages, at least the largest chunk rounded up
  // (empty if no home is on NVMe). All outlive this object; `bounce` is not used between calls.
  ShardAccess(Swapper& swapper, const ArenaSpans& arenas, std::span<std::byte> bounce);

  // The pieces in which the shard is read and written, in order of first byte; empty if the plan
  // does not know the shard.
  std::vector<ShardChunk> Chunks(ShardKind kind, uint32_t group) const;

  // Copies [first_byte, first_byte + bytes.size()) of the shard out of or into its home. The range
  // must cover whole pieces for Write; Read takes any range. Read refuses a piece that was never
  // written or whose newest bytes are not at home. On failure the content of `bytes` (Read) or of
  // the pieces in the range (Write) is undefined and residency knows it.
  Status Read(ShardKind kind, uint32_t group, uint64_t first_byte, std::span<std::byte> bytes);
  Status Write(ShardKind kind, uint32_t group, uint64_t first_byte,
               std::span<const std::byte> bytes);

 private:
  Status ReadRow(uint32_t row, uint64_t skip, std::span<std::byte> bytes);
  Status WriteRow(uint32_t row, std::span<const std::byte> bytes);
  std::span<std::byte> HomeSpan(uint32_t row) const;
  Status ChunkTransferNow(uint32_t row, IoDirection direction);
  Status CopyNow(std::span<std::byte> destination, std::span<const std::byte> source,
                 CopyDirection direction);

  Swapper& swapper_;
  const ArenaSpans arenas_;
  const std::span<std::byte> bounce_;
};

}  // namespace marea
