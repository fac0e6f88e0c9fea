// Collectives between the ranks: what one rank calls, all ranks call, in the same order and with
// the same sizes.
//
// Over Gloo spans are RAM, and every call blocks until this rank's part is done: its spans may be
// read and changed then. Over NCCL they are VRAM, and a call returns once it is in the stream. When
// another rank has failed, died or stalled, a call in progress ends and every later one returns at
// once with that cause (RankGroup::CauseOf); the communicator is of no use any more.
//
// Over Gloo, calls of different kinds or sizes that meet are found before any data moves: Failed on
// each rank that sees the difference, and the communicator is of no use any more (call
// RankGroup::Fail).
//
// [Note: order of sums]
// Over Gloo a reduce-scatter adds the ranks' values one by one, ((r0 + r1) + r2) + ..., each rank
// for the part that it keeps. So a sum's bits depend on the number of ranks and on the values
// alone: not on where in the span an element lies, not on how calls are cut into pieces, not on
// what ran before. A ring would sum each part in another order. What a rank sends and receives is
// the same as in a ring: (ranks - 1) parts.
// NCCL's ring adds a part in the order of the ring, beginning behind the rank that keeps it. Whose
// part an element is, and how long the span, are the plan's, so these bits too are the same at
// every ZeRO stage, placement and bucket size; with two ranks they are Gloo's.
//
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/comm/rank_group.h"
#include "io/status.h"

namespace marea {

class Collectives {
 public:
  virtual ~Collectives() = default;
  // The ranks' shards one after the other. whole.size() = ranks * shard.size(); `shard` may lie in
  // `whole` at this rank's place, and overlaps it nowhere else.
  virtual Status AllGather(std::span<const std::byte> shard, std::span<std::byte> whole) = 0;
  // In place: this rank's part of `whole` (the rank-th of as many equal parts as there are ranks)
  // becomes the sum over ranks of that part; see Note [order of sums]. What the other parts
  // hold afterwards is undefined.
  virtual Status ReduceScatter(std::span<float> whole) = 0;
  // The stream that calls are put into, a cudaStream_t; null where calls block.
  virtual void* stream() const { return nullptr; }
  // What ended it, Ok while it works: to a stream, a collective that was ended looks complete.
  virtual Status failure() { return Status::Ok(); }
};

class Communicator : public Collectives {
 public:
  // One rank to another; of several with the same partner the first sent is the first received.
  virtual Status Send(std::span<const std::byte> bytes, uint32_t to) = 0;
  virtual Status Receive(std::span<std::byte> bytes, uint32_t from) = 0;
};

// What a communicator over Gloo holds in RAM for ReduceScatter, from its making to its end: two
// pieces from each other rank, at most this much together. Nothing for one rank.
constexpr uint64_t kGlooScratchBytesMax = 32u << 20;
uint64_t GlooScratchBytes(uint32_t ranks);

// Over TCP by Gloo, from torch's c10d. `name`: every rank makes the same; each has connections and
// a thread for them of its own. It uses the interface that leads to MASTER_ADDR, or the one that
// GLOO_SOCKET_IFNAME names. `timeout` bounds each call while no rank has failed. `group` must
// outlive it. A second one of the same name: InvalidArgument.
Result<std::unique_ptr<Communicator>> MakeGlooCommunicator(
    RankGroup& group, const std::string& name,
    std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace marea
