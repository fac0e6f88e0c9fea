// A bf16 value that rounds as torch's c10::BFloat16 does, without torch: to the nearest, ties to
// even, every NaN to 0x7fc0.
//
// Thread rule: plain values. Constexpr, which device code may call (--expt-relaxed-constexpr).
#pragma once

#include <bit>
#include <cstdint>

#include "engine/optim/split_master.h"

namespace marea {

struct Bf16 {
  uint16_t bits;

  Bf16() = default;
  constexpr explicit Bf16(float value) : bits(Round(value)) {}
  constexpr explicit operator float() const { return FloatFromBf16(bits); }

 private:
  static constexpr uint16_t Round(float value) {
    if (value != value) return 0x7fc0;
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    return static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
  }
};
static_assert(sizeof(Bf16) == sizeof(uint16_t));

// The value that an Element (Bf16 or float) holds of it.
template <typename Element>
constexpr float Rounded(float value) {
  return static_cast<float>(Element(value));
}

}  // namespace marea
