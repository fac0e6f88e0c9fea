// Where every shard of a plan is, and the transfers that bring it and take it home.
//
// The lower half of the plan compiler: it makes the homes and rings, and emits reads, writes and
// copies; plan_compiler.cc says when. Used by it alone, as its base. Not thread-safe.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/plan/plan_builder.h"
#include "engine/plan/plan_compiler.h"
#include "engine/plan/plan_spec.h"

namespace marea {

// Note [Parts and chunks]
// A group is cut into one part for each rank (engine/zero/partition.h) and each part into chunks of
// the spec's size, the last one shorter. So a chunk never crosses a part, every kind of a group has
// the same chunks, and a rank's own chunks are the same bytes at every stage. With one rank there
// is one part. A buffer holds some range of its shard, Content::first_byte says from where: an
// owned part, a whole group, or one chunk.

// One chunk of a group.
struct Chunk {
  uint32_t index;  // within the group
  ElementRange elements;
};

class ShardFlow {
 protected:
  explicit ShardFlow(const PlanSpec& spec) : spec_(spec), model_(*spec.model) { MakeHomes(); }

  Op Context(When when, uint32_t block, uint32_t micro) const;
  void MakeHomes();
  uint32_t Scalar(ScalarName name, uint32_t group, uint32_t micro);
  uint64_t Elements(uint32_t group) const;
  bool Partitioned(uint32_t group, ShardKind kind) const;
  // The chunks of one rank's part, of the part that this rank owns of such a shard (all of the
  // group where it is not partitioned), and of all parts but this rank's.
  std::vector<Chunk> ChunksOfPart(uint32_t group, uint32_t rank) const;
  std::vector<Chunk> OwnChunks(uint32_t group, ShardKind kind) const;
  std::vector<Chunk> OtherChunks(uint32_t group) const;
  // A range's stretch of a buffer that holds it.
  Piece RangeOf(uint32_t buffer, const ElementRange& elements, uint64_t element_bytes) const;
  Piece HomeChunk(uint32_t group, ShardKind kind, const Chunk& chunk);
  Content OwnedContent(uint32_t group, ShardKind kind) const;
  // A place in a ring for a chunk whose home is elsewhere.
  Piece ValueFor(uint32_t ring, const Piece& home, uint32_t batch);
  // The chunk as bytes that the CPU can reach: in place where its home is RAM, else staged.
  Piece FetchToRam(const Piece& home, const Op& context, uint32_t batch);
  // The way back from RAM; nothing to do where the bytes are at home already.
  void ReturnFromRam(const Piece& home, const Piece& staged, const Op& context);
  // Brings the chunk to `target` in VRAM, and the way back. REQUIRES: its home is not VRAM.
  void FetchToVram(const Piece& home, const Piece& target, const Op& context);
  void ReturnFromVram(const Piece& home, const Piece& value, const Op& context);
  // Where the input of `block` is written, for the i-th micro-batch of a wave.
  Piece NewActivation(uint32_t block, uint32_t i, uint32_t batch);
  // The kept input, back in VRAM for the recompute.
  Piece KeptActivation(uint32_t block, uint32_t i, const Op& context);
  uint32_t PartialHome(uint32_t group, uint32_t use);
  Piece NewSum(uint32_t group, uint32_t use, uint32_t batch);
  Piece FetchSum(uint32_t group, uint32_t use, Op context, uint32_t batch);
  // Sends bytes in VRAM to a home elsewhere, chunk by chunk. Both hold at least these chunks.
  void SendHome(const Piece& value, uint32_t home, uint64_t element_bytes, uint32_t group,
                const std::vector<Chunk>& chunks, Op context);

  const PlanSpec& spec_;
  const ModelShape& model_;
  PlanBuilder builder_;
  uint32_t weight_ring_ = 0, accumulator_ring_ = 0, activation_ring_ = 0, staging_ring_ = 0;
  uint32_t optimizer_ring_ = 0;
  std::map<std::pair<uint32_t, ShardKind>, uint32_t> homes_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> partials_;  // by group and use
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> use_;       // which use of the group, by block
  std::vector<uint32_t> use_count_;
  std::map<uint32_t, uint32_t> norms_;  // by trainable group
  std::vector<uint32_t> losses_;        // by micro-batch
  uint32_t coefficient_ = 0;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t>
      activation_homes_;             // by block and place in wave
  std::vector<uint32_t> gradients_;  // of the blocks' outputs, by place in wave
};

}  // namespace marea
