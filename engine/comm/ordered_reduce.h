// The arithmetic of a reduce-scatter on the CPU, and how it is cut into pieces.
//
// Thread rule: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace marea {

// own[i] = ((values of rank 0)[i] + (of rank 1)[i]) + ... in fp32; `own` stands at place `rank`,
// the others' values one rank after the other, own.size() each, at `others`.
void SumInRankOrder(std::span<float> own, const float* others, uint32_t rank, uint32_t ranks);

// Elements of one piece from one rank, so that two pieces from each of the others stay within
// `scratch_bytes`.
size_t ReducePieceElements(uint32_t ranks, uint64_t scratch_bytes);

}  // namespace marea
