// Half-precision values as they stand in files, into float. Exact.
//
// Pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace marea {

inline float FloatFromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// IEEE binary16, subnormals, infinities and NaN payloads included.
inline float FloatFromFp16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  const uint32_t fraction = bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // exact: ten bits
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

}  // namespace marea
