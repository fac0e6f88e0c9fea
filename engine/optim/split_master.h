// The split master: an fp32 weight kept as its bf16 high half and the 16 bits that half lacks.
//
// The high half is the weight that forward and backward use; the low half is needed only by the
// optimizer. Together they are the fp32 master, so nothing is lost and nothing is stored twice:
// 4 bytes a parameter instead of 2 + 4.
//
// The idea is that of Split-SGD-BF16 (Kalamkar et al., "Optimizing Deep Learning Recommender
// Systems Training on CPU Cluster Architectures", SC 2020), whose high half is cut off. Here the
// high half is rounded, half up in magnitude, so that forward sees a weight that is off by at most
// half a unit in the last place and not always towards zero. (Zamirai et al., "Revisiting BFloat16
// Training", 2020, keep a second bf16 for Kahan summation for the same purpose; that is an
// approximation of the master, this is the master.)
//
// Why 16 bits suffice: with high = (bits + 0x8000) >> 16, the difference bits - (high << 16) lies
// in
// [-0x8000, 0x7fff], and as (high << 16) ends in 16 zeros, its two's complement is the low 16 bits
// of the float. Consequences:
//   - every finite float and both infinities come back bit for bit;
//   - a finite value above bf16's largest has an infinite high half and a negative remainder; it
//     still comes back exactly;
//   - a tie goes away from zero, where bf16 conversions elsewhere (torch, CPUs) go to even;
//   - adding 0x8000 could turn a NaN into an infinity or flip its sign, so a NaN is stored as a
//   quiet
//     NaN in the high half and remainder 0.
//
// Thread rule: pure functions. optim_kernels-inl.h holds the SIMD form; tests compare the two. The
// functions of one value are constexpr, which device code may call (--expt-relaxed-constexpr).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace marea {

struct SplitFloat {
  uint16_t high;  // bf16
  uint16_t low;   // two's complement of the signed remainder; the `master_low` shard
};

// A bf16 value as a float; exact.
constexpr float FloatFromBf16(uint16_t high) {
  return std::bit_cast<float>(uint32_t{high} << 16);
}

constexpr SplitFloat SplitMaster(float master) {
  const uint32_t bits = std::bit_cast<uint32_t>(master);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40), 0};
  }
  return {static_cast<uint16_t>((bits + 0x8000) >> 16), static_cast<uint16_t>(bits)};
}

constexpr float JoinMaster(uint16_t high, uint16_t low) {
  const uint32_t remainder = static_cast<uint32_t>(static_cast<int16_t>(low));  // sign-extended
  return std::bit_cast<float>((uint32_t{high} << 16) + remainder);
}

// The same for arrays: initialisation, loading and export. Arrays must not overlap.
inline void SplitMasters(const float* masters, size_t elements, uint16_t* high, uint16_t* low) {
  for (size_t i = 0; i < elements; ++i) {
    const SplitFloat split = SplitMaster(masters[i]);
    high[i] = split.high;
    low[i] = split.low;
  }
}

inline void JoinMasters(const uint16_t* high, const uint16_t* low, size_t elements,
                        float* masters) {
  for (size_t i = 0; i < elements; ++i) masters[i] = JoinMaster(high[i], low[i]);
}

}  // namespace marea
