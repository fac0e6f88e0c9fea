// The model's weights, wherever among the ranks they rest: rank 0 asks, the others answer.
//
// For export: one rank reads the whole model piece by piece and never holds more than a piece.
// Owner: the trainer. Thread rule: one thread; only while no op of a plan is in flight. Blocks.
#pragma once

#include <cstdint>
#include <span>

#include "engine/comm/communicator.h"
#include "engine/plan/plan_spec.h"
#include "io/status.h"
#include "swap/shard_access.h"

namespace marea {

class WeightReader {
 public:
  // All outlive the reader. `lane` is null for one rank.
  WeightReader(const PlanSpec& spec, ShardAccess& shards, Communicator* lane)
      : spec_(spec), shards_(shards), lane_(lane) {}

  // Rank 0: elements [first, first + out.size() / WeightBytes) of the group.
  Status Read(uint32_t group, uint64_t first, std::span<std::byte> out);
  // Rank 0: no more reads; the others' Serve returns. To be called after a failed Read too, unless
  // it was the ranks that failed.
  Status Finish();
  // Any other rank: answers until rank 0 has finished.
  Status Serve();

 private:
  Status ReadOwn(uint32_t group, uint64_t first, std::span<std::byte> out);
  Status ReadFrom(uint32_t rank, uint32_t group, uint64_t first, std::span<std::byte> out);

  const PlanSpec& spec_;
  ShardAccess& shards_;
  Communicator* const lane_;
};

}  // namespace marea
