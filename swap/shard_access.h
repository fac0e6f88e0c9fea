// Direct access to homes, whatever their tier, before the first step and after the last:
// initialisation streams every chunk to its home, export reads it back.
//
// Owner: the trainer. Thread rule: one thread; only while no op of a plan is in flight. Blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "io/status.h"
#include "swap/swapper.h"

namespace marea {

class ShardAccess {
 public:
  // `bases[space]` is where a space's bytes begin in memory, as for the executor. `bounce` carries
  // NVMe chunks: page aligned, whole pages, at least the largest chunk (empty if no home is on
  // NVMe; memory registered with the device is faster; the staging ring will do). All outlive this
  // object; `bounce` is not used between calls. `pump` is called over and over while a transfer is
  // in flight, for transfers that no thread drives (a simulation); without it, calls sleep.
  ShardAccess(Swapper& swapper, const std::array<std::byte*, kSpaceCount>& bases,
              std::span<std::byte> bounce, std::function<void()> pump = {});

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
  std::span<std::byte> HomeSpan(uint32_t row, Space* space) const;
  Status MoveChunk(uint32_t row, IoDirection direction);
  Status MoveVram(std::span<std::byte> destination, std::span<const std::byte> source,
                  CopyDirection direction);
  Status WaitFor(const std::function<void(Completion)>& start);
  Status Unknown(ShardKind kind, uint32_t group, uint64_t first_byte, uint64_t bytes) const;

  Swapper& swapper_;
  const std::array<std::byte*, kSpaceCount> bases_;
  const std::span<std::byte> bounce_;
  const std::function<void()> pump_;
};

}  // namespace marea
