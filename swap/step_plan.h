// The step plan: a training step as plain data.
//
// A plan is a loop body: the compiler (engine/plan) emits one serial program of ops; each op sits
// in one lane, and a lane's order is the program's projection on it. Lanes run concurrently and
// ahead of each other; `waits` are the only order between lanes. Ops declare every byte range that
// they touch (`accesses`), and waits are derived from those declarations alone (plan_waits.h) and
// proved by a separate reader (plan_check.h). The executor (executor.h) has no other input than a
// plan and each turn's mask. See docs/step-plan.md for a worked example.
//
// One *turn* of the loop is `update(k-1) + forward(k) + backward(k)`: the optimizer step of the
// previous turn's gradients flows into the forward of this one.
//
// Plain values; a plan is immutable once compiled, so any thread may read it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "swap/shard.h"

namespace marea {

enum class Lane : uint8_t { kNvmeRead, kNvmeWrite, kH2d, kD2h, kCompute, kComm, kCpu };
inline constexpr int kLaneCount = 7;
const char* LaneName(Lane lane);  // "nvme_read", ...

enum class OpKind : uint8_t {
  kRead,             // nvme_read: a chunk from its NVMe home into a RAM staging value
  kWrite,            // nvme_write: a RAM staging value into its NVMe home
  kCopyIn,           // h2d: RAM to VRAM
  kCopyOut,          // d2h: VRAM to RAM
  kGather,           // comm: every rank's part of a shard, side by side
  kReduceScatter,    // comm: the sum over ranks of a gradient sum, of which each keeps its part
  kForward,          // compute: one block, one micro-batch
  kBackward,         // compute: recompute and backward of one block, one micro-batch
  kForwardBackward,  // compute: the last block, forward and backward back to back
  kReduce,           // compute: adds the uses of a group, rounds to the held gradient, sums squares
  kClip,             // cpu: the turn's loss; in training the global norm and clipping coefficient
  kUpdate,           // cpu: AdamW on one chunk
  kHeadEval,         // compute: the last block in evaluation, loss only
  kCommit,           // cpu: commits an epoch
};
inline constexpr int kOpKindCount = 14;
const char* OpKindName(OpKind kind);  // "read", ...

// Address spaces. Offsets in kFile are of one slot; both slots of a shard are one location here.
enum class Space : uint8_t { kVram, kRam, kFile, kScalar };
inline constexpr int kSpaceCount = 4;
const char* SpaceName(Space space);

// In which turns an op runs. A skipped op still waits, retires and advances its lane.
enum class When : uint8_t {
  kAlways,
  kIfUpdate,   // the turn applies the previous turn's gradients
  kIfForward,  // the turn trains or evaluates
  kIfTrain,
  kIfEval,
  kIfNoUpdate,  // the turn trains or evaluates and applies no gradients
};

// What one turn does. Waits hold for every sequence of masks.
struct StepMask {
  bool update = false;
  bool train = false;
  bool eval = false;         // never together with train
  uint32_t micro_count = 0;  // micro-batches of this turn; ops of later ones are skipped
};

inline constexpr uint32_t kNone = UINT32_MAX;

// Whose bytes a buffer holds: the def-use check and the swapper's residency follow them.
struct Content {
  ShardKind kind = ShardKind::kScalar;
  uint32_t group = kNone;   // parameter group, kNone for activations and scalars
  uint32_t index = 0;       // kPartial: which use of the group; kActivation: block; kScalar: name
  uint32_t micro = 0;       // kActivation: the micro-batch's place in its wave
  uint64_t first_byte = 0;  // where in the shard the buffer begins (staging values hold one chunk)
  auto operator<=>(const Content&) const = default;
};

inline constexpr uint32_t kHomeRing = kNone;

// A home (fixed for the whole run) or a value in a ring, whose bytes are reused within a turn.
struct Buffer {
  Space space;
  uint64_t bytes;
  uint64_t offset;            // in its space; from the start of the arena
  uint32_t ring = kHomeRing;  // index into StepPlan::rings
  Content content;
};

enum class AccessMode : uint8_t { kRead = 1, kWrite = 2, kReadWrite = 3 };
constexpr bool Reads(AccessMode mode) {
  return (static_cast<int>(mode) & 1) != 0;
}
constexpr bool Writes(AccessMode mode) {
  return (static_cast<int>(mode) & 2) != 0;
}

struct Access {
  uint32_t buffer;  // index into StepPlan::buffers
  uint64_t offset;  // within the buffer
  uint64_t bytes;
  AccessMode mode;
  auto operator<=>(const Access&) const = default;
};

// "`lane` has completed through `position`" of this turn (steps_back 0) or the one before (1).
struct Wait {
  Lane lane;
  uint32_t position;
  uint8_t steps_back;
  auto operator<=>(const Wait&) const = default;
};

// The order of accesses is part of the contract between compiler and runner:
//   read, write, copy_in, copy_out   source, destination (equal bytes)
//   forward                          output activation, [input activation], weights of each group
//   backward                         output gradient (the input gradient replaces it in place),
//                                    [input activation, weights...], accumulators of each
//                                    trainable group
//   forward_backward                 loss scalar, input gradient, input activation, weights...,
//                                    accumulators...
//   head_eval                        loss scalar, input activation, weights...
//   reduce                           held gradient, norm scalar, accumulators of each use (this
//                                    rank's part of all three, where there are ranks)
//   clip                             clip scalars (coefficient), loss scalars, norm scalars...
//   gather                           this rank's part (where it rests, or in its place in the
//                                    destination), destination
//   reduce_scatter                   sum of one use; afterwards only this rank's part has a meaning
//   update                           weight, [master_low], moment1, moment2, gradient, coefficient
// The embedding block has no input activation and its backward needs no weights. A written (not
// read) accumulator is overwritten, a read-written one added to.
struct Op {
  OpKind kind;
  Lane lane;
  When when = When::kAlways;
  uint32_t block = kNone;  // the block that this op serves
  uint32_t group = kNone;  // the parameter group it touches, where it is one
  uint32_t chunk = 0;      // chunk of the group, for transfers and updates
  uint32_t micro = kNone;  // micro-batch, kNone where the op is not one micro-batch's
  uint32_t position = 0;   // index within its lane
  std::vector<Access> accesses = {};
  std::vector<Wait> waits = {};
};

// A part of an arena whose bytes are handed out in order of first use and reused: its size is the
// prefetch distance.
struct Ring {
  std::string name;  // "weights", "accumulators", "staging"
  Space space;
  uint64_t offset;
  uint64_t bytes;
};

struct StepPlan {
  std::vector<Buffer> buffers;
  std::vector<Ring> rings;
  std::vector<Op> ops;  // one serial order; every wait with steps_back 0 points backwards
  std::array<std::vector<uint32_t>, kLaneCount> lane_ops;  // indices into ops
  std::array<uint64_t, kSpaceCount> space_bytes{};         // what each arena must hold
  // How many ops of a lane may be in flight at once: a lane issues in order and retires in order.
  std::array<uint32_t, kLaneCount> lane_depth{};
};

// Does `op` run in a turn with this mask?
bool Active(const Op& op, const StepMask& mask);

// Bytes that an op moves between tiers; 0 for compute, optimizer and collectives.
uint64_t TransferBytes(const Op& op);

// One line for people: "cpu #12 update block 3 group 2 chunk 0 | waits h2d>=4 | rw ram[4096+512]".
std::string Describe(const StepPlan& plan, const Op& op);

}  // namespace marea
