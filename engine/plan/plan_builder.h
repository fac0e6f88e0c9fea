// The tools of the plan compiler: buffers, accesses, ops. Used by plan_compiler.cc alone.
#pragma once

#include <utility>
#include <vector>

#include "engine/plan/plan_spec.h"
#include "io/units.h"
#include "swap/step_plan.h"

namespace marea {

// A stretch of a buffer.
struct Piece {
  uint32_t buffer;
  uint64_t offset;
  uint64_t bytes;
};

inline Access ReadOf(const Piece& piece) {
  return {piece.buffer, piece.offset, piece.bytes, AccessMode::kRead};
}
inline Access WriteOf(const Piece& piece) {
  return {piece.buffer, piece.offset, piece.bytes, AccessMode::kWrite};
}
inline Access ReadWriteOf(const Piece& piece) {
  return {piece.buffer, piece.offset, piece.bytes, AccessMode::kReadWrite};
}

inline Space SpaceOf(Tier tier) {
  return tier == Tier::kVram ? Space::kVram : tier == Tier::kRam ? Space::kRam : Space::kFile;
}

class PlanBuilder {
 public:
  // A buffer for the whole run.
  uint32_t Home(Space space, uint64_t bytes, const Content& content) {
    uint64_t& top = plan_.space_bytes[static_cast<int>(space)];
    const uint64_t align = space == Space::kScalar ? sizeof(double) : kPageBytes;
    plan_.buffers.push_back({space, bytes, top, kHomeRing, content});
    top += RoundUp(bytes, align);
    return static_cast<uint32_t>(plan_.buffers.size() - 1);
  }

  // A buffer in a ring; it gets its offset from AssignRings. Values of one batch lie side by side
  // and are allocated together.
  uint32_t Value(uint32_t ring, uint64_t bytes, const Content& content, uint32_t batch) {
    const uint32_t value = static_cast<uint32_t>(plan_.buffers.size());
    plan_.buffers.push_back({plan_.rings[ring].space, bytes, UINT64_MAX, ring, content});
    batches_[batch].push_back(value);
    return value;
  }
  uint32_t NewBatch() {
    batches_.emplace_back();
    return static_cast<uint32_t>(batches_.size() - 1);
  }
  const std::vector<std::vector<uint32_t>>& batches() const { return batches_; }

  uint32_t AddRing(std::string name, Space space, uint64_t bytes) {
    plan_.rings.push_back({std::move(name), space, 0, RoundUp(bytes, kPageBytes)});
    return static_cast<uint32_t>(plan_.rings.size() - 1);
  }

  // Lays the rings out after the homes; no home may be made afterwards.
  void PlaceRings() {
    for (Ring& ring : plan_.rings) {
      uint64_t& top = plan_.space_bytes[static_cast<int>(ring.space)];
      ring.offset = top;
      top += ring.bytes;
    }
  }

  Piece Whole(uint32_t buffer) const { return {buffer, 0, plan_.buffers[buffer].bytes}; }

  void Emit(Op op) { plan_.ops.push_back(std::move(op)); }

  void EmitTransfer(OpKind kind, Op context, const Piece& from, const Piece& to) {
    context.kind = kind;
    context.lane = kind == OpKind::kRead     ? Lane::kNvmeRead
                   : kind == OpKind::kWrite  ? Lane::kNvmeWrite
                   : kind == OpKind::kCopyIn ? Lane::kH2d
                                             : Lane::kD2h;
    context.accesses = {ReadOf(from), WriteOf(to)};
    plan_.ops.push_back(std::move(context));
  }

  const Buffer& buffer(uint32_t index) const { return plan_.buffers[index]; }
  StepPlan& plan() { return plan_; }

 private:
  StepPlan plan_;
  std::vector<std::vector<uint32_t>> batches_;  // values, by batch
};

}  // namespace marea
