// The arithmetic of a gradient's reduction, block by block: what the CPU (reduce.cc) and the GPU
// (reduce_cuda.cu) must agree on to the bit, without torch.
//
// Note [Reduce in blocks]: the uses are added in their order, the sum is rounded to what is held,
// and the squares of the rounded values are added in double. Element k of a block of
// kReduceBlockElements goes to running sum k mod kReduceLanes; the running sums are added pairwise,
// block sums one after another. So neither chunks, threads nor the device change a bit. Which
// payload a NaN hands on depends on the instruction, so every NaN is stored as the positive quiet
// one.
//
// Thread rule: pure functions. Constexpr, which device code may call (--expt-relaxed-constexpr).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "engine/model/bf16.h"

namespace marea {

inline constexpr uint64_t kReduceBlockElements = 4096;
inline constexpr uint64_t kReduceLanes = 8;

constexpr uint64_t ReduceBlocks(uint64_t elements) {
  return (elements + kReduceBlockElements - 1) / kReduceBlockElements;
}

// A sum of fp32 values as it is held: Held is float or Bf16.
template <typename Held>
constexpr Held HeldFrom(float sum) {
  return static_cast<Held>(sum == sum ? sum : std::numeric_limits<float>::quiet_NaN());
}

constexpr double PositiveNan(double sum) {
  return sum == sum ? sum : std::numeric_limits<double>::quiet_NaN();
}

// Adds, rounds and squares `count` elements beginning at `first`; returns the block's sum of
// squares. REQUIRES: count <= kReduceBlockElements; at least one use.
template <typename Held>
double ReduceBlock(std::span<const float* const> uses, uint64_t first, uint64_t count, Held* held) {
  std::array<float, kReduceBlockElements> sum;
  std::copy(uses[0] + first, uses[0] + first + count, sum.begin());
  for (size_t i = 1; i < uses.size(); ++i) {
    const float* values = uses[i] + first;
    for (uint64_t k = 0; k < count; ++k) sum[k] += values[k];
  }
  for (uint64_t k = 0; k < count; ++k) {
    const Held rounded = HeldFrom<Held>(sum[k]);
    held[first + k] = rounded;
    sum[k] = static_cast<float>(rounded);
  }
  std::fill(sum.begin() + count, sum.end(), 0.0f);
  std::array<double, kReduceLanes> squares{};
  for (uint64_t k = 0; k < kReduceBlockElements; k += kReduceLanes) {
    for (uint64_t lane = 0; lane < kReduceLanes; ++lane) {
      const double value = sum[k + lane];
      squares[lane] += value * value;
    }
  }
  return ((squares[0] + squares[1]) + (squares[2] + squares[3])) +
         ((squares[4] + squares[5]) + (squares[6] + squares[7]));
}

// The block sums in order.
inline double AddBlockSums(std::span<const double> sums) {
  double total = 0;
  for (const double sum : sums) total += sum;
  return PositiveNan(total);
}

}  // namespace marea
