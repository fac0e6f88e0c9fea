// Which vector instructions the optimizer may use. Every level gives the same bits; they differ in
// speed only, so the level is passed in and never changes a result.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace marea {

enum class SimdLevel : uint8_t {
  kScalar,  // the reference: any machine, one element at a time
  kAvx2,    // AVX2 with FMA and BMI (Intel since 2013, AMD since 2015)
  kAvx512,  // AVX-512 F, BW, CD, DQ, VL
};

// The best level that this processor, its operating system and this build offer.
SimdLevel DetectSimdLevel();

// "scalar", "avx2", "avx512".
const char* SimdLevelName(SimdLevel level);

// Every level that works here, kScalar first.
std::span<const SimdLevel> AvailableSimdLevels();

}  // namespace marea
