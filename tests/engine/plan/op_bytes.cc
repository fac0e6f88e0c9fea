#include "tests/engine/plan/op_bytes.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace marea {
namespace {

constexpr uint64_t kStride = 0x9e3779b97f4a7c15;  // odd: no word of a span repeats
constexpr size_t kBlockBytes = 4096;

uint64_t Mix(uint64_t a, uint64_t b) {
  const uint64_t words[] = {a, b};
  return XXH3_64bits(words, sizeof(words));
}

uint64_t ResultSeed(uint32_t op_index, uint64_t read_hash, size_t access) {
  return Mix(read_hash, Mix(op_index, access));
}

template <typename Counts>
uint64_t Hash(const Op& op, Spans spans, const Counts& counts) {
  uint64_t hash = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!counts(op.accesses[i].mode)) continue;
    hash = Mix(hash, XXH3_64bits(spans[i].data(), spans[i].size()));
  }
  return hash;
}

}  // namespace

EngineOp::EngineOp(const Op& plan_op, Spans plan_spans)
    : op(plan_op), spans(plan_spans.begin(), plan_spans.end()) {
  if (op.kind != OpKind::kGather || op.accesses[0].buffer != op.accesses[1].buffer) return;
  const std::span<std::byte> whole = spans[1];
  const auto before = static_cast<size_t>(spans[0].data() - whole.data());
  const size_t after = before + spans[0].size();
  spans = {spans[0], whole.first(before), whole.subspan(after)};
  op.accesses.push_back(op.accesses[1]);
}

uint64_t HashReads(const Op& op, Spans spans) {
  return Hash(op, spans, [](AccessMode mode) { return Reads(mode); });
}

uint64_t HashPureReads(const Op& op, Spans spans) {
  return Hash(op, spans, [](AccessMode mode) { return !Writes(mode); });
}

void FillBytes(uint64_t seed, std::span<std::byte> bytes) {
  std::array<uint64_t, kBlockBytes / sizeof(uint64_t)> block;
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    for (size_t i = 0; i < block.size(); ++i) block[i] = seed + i * kStride;
    seed += block.size() * kStride;
    std::memcpy(bytes.data() + at, block.data(), std::min(kBlockBytes, bytes.size() - at));
  }
}

void WriteResult(const Op& op, uint32_t op_index, uint64_t read_hash, Spans spans) {
  for (size_t i = 0; i < spans.size(); ++i) {
    if (Writes(op.accesses[i].mode)) FillBytes(ResultSeed(op_index, read_hash, i), spans[i]);
  }
}

bool HoldsResult(const Op& op, uint32_t op_index, uint64_t read_hash, Spans spans) {
  std::vector<std::byte> expected;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!Writes(op.accesses[i].mode) || spans[i].empty()) continue;
    expected.resize(spans[i].size());
    FillBytes(ResultSeed(op_index, read_hash, i), expected);
    if (std::memcmp(expected.data(), spans[i].data(), expected.size()) != 0) return false;
  }
  return true;
}

void SpoilWritten(const Op& op, Spans spans) {
  for (size_t i = 0; i < spans.size(); ++i) {
    if (Writes(op.accesses[i].mode)) std::memset(spans[i].data(), 0xa5, spans[i].size());
  }
}

}  // namespace marea
