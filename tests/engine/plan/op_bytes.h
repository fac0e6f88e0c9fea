// Engine ops of the simulation: they compute nothing but bytes that show every mistake of order.
//
// An op reads all bytes of its read spans into one hash, and what it writes is a function of that
// hash and of which op it is. So a single wrong byte, anywhere, changes everything that is made
// from it, and two runs that read the same everywhere hold the same bytes everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "swap/step_plan.h"

namespace marea {

using Spans = std::span<const std::span<std::byte>>;  // of an op's accesses

// The op as the simulation runs it. A gather whose source lies in its destination leaves those
// bytes alone and writes what is around them; any other op is as the plan has it.
struct EngineOp {
  EngineOp(const Op& plan_op, Spans plan_spans);
  Op op;
  std::vector<std::span<std::byte>> spans;
};

// One number for all bytes that the op reads; and for those that it does not also write.
uint64_t HashReads(const Op& op, Spans spans);
uint64_t HashPureReads(const Op& op, Spans spans);

// What op `op_index`, having read `read_hash`, writes into its written spans.
void WriteResult(const Op& op, uint32_t op_index, uint64_t read_hash, Spans spans);
bool HoldsResult(const Op& op, uint32_t op_index, uint64_t read_hash, Spans spans);

// Spoils what the op will overwrite: whoever reads it too early reads nonsense.
void SpoilWritten(const Op& op, Spans spans);

// Deterministic bytes, different at every place of every seed.
void FillBytes(uint64_t seed, std::span<std::byte> bytes);

}  // namespace marea
