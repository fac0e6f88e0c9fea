// The reference: a plan's ops one after another in program order, transfers as plain copies.
//
// Every buffer has memory of its own, rings included, so nothing is ever reused, overtaken or
// late. What an op reads here is what it must read in any run of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "swap/step_plan.h"
#include "tests/engine/plan/op_bytes.h"

namespace marea {

class SerialRun {
 public:
  // Runs all turns. Homes that hold something before the first turn (HasInitialBytes) begin with
  // bytes drawn from `seed`. `plan` outlives the run.
  SerialRun(const StepPlan& plan, std::span<const StepMask> masks, uint64_t seed)
      : plan_(plan), memory_(plan.buffers.size()), spans_(plan.ops.size()) {
    for (size_t i = 0; i < memory_.size(); ++i) {
      memory_[i].resize(plan.buffers[i].bytes);
      if (!HasInitialBytes(plan.buffers[i])) continue;
      FillBytes(seed * 1'000'003 + i, memory_[i]);
      initial_.emplace_back(static_cast<uint32_t>(i), memory_[i]);
    }
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      for (const Access& access : plan.ops[i].accesses) {
        spans_[i].push_back(std::span(memory_[access.buffer]).subspan(access.offset, access.bytes));
      }
    }
    for (const StepMask& mask : masks) RunTurn(mask);
  }

  static bool HasInitialBytes(const Buffer& buffer) {
    const ShardKind kind = buffer.content.kind;
    return buffer.ring == kHomeRing && (kind < ShardKind::kGradient || kind == ShardKind::kScalar);
  }

  struct Initial {
    uint32_t buffer;
    std::vector<std::byte> bytes;
    Initial(uint32_t index, std::vector<std::byte> content)
        : buffer(index), bytes(std::move(content)) {}
  };
  const std::vector<Initial>& initial() const { return initial_; }

  // What the op read in this turn; 0 for transfers and for ops that the mask skipped.
  uint64_t read_hash(uint64_t turn, uint32_t op_index) const {
    return read_hashes_[turn * plan_.ops.size() + op_index];
  }
  // A buffer's bytes after the last turn.
  std::span<const std::byte> buffer(uint32_t index) const { return memory_[index]; }

 private:
  void RunTurn(const StepMask& mask) {
    for (uint32_t i = 0; i < plan_.ops.size(); ++i) {
      const Op& op = plan_.ops[i];
      const std::vector<std::span<std::byte>>& spans = spans_[i];
      read_hashes_.push_back(0);
      if (!Active(op, mask)) continue;
      if (op.kind <= OpKind::kCopyOut) {
        std::memcpy(spans[1].data(), spans[0].data(), spans[0].size());
        continue;
      }
      const EngineOp engine(op, spans);
      read_hashes_.back() = HashReads(engine.op, engine.spans);
      WriteResult(engine.op, i, read_hashes_.back(), engine.spans);
    }
  }

  const StepPlan& plan_;
  std::vector<std::vector<std::byte>> memory_;  // by buffer
  std::vector<std::vector<std::span<std::byte>>> spans_;
  std::vector<Initial> initial_;
  std::vector<uint64_t> read_hashes_;
};

}  // namespace marea
