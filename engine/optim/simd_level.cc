#include "engine/optim/simd_level.h"

#include <array>

#include "engine/optim/optim_kernels.h"
#include "io/check.h"

namespace marea {
namespace {

SimdLevel Detect() {
#if defined(__x86_64__)
  // The compiler's runtime asks the operating system too whether it saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) return SimdLevel::kAvx512;
  if (avx2) return SimdLevel::kAvx2;
#endif
  return SimdLevel::kScalar;
}

constexpr std::array kLevels = {SimdLevel::kScalar, SimdLevel::kAvx2, SimdLevel::kAvx512};

}  // namespace

SimdLevel DetectSimdLevel() {
  static const SimdLevel level = Detect();
  return level;
}

const char* SimdLevelName(SimdLevel level) {
  switch (level) {
    case SimdLevel::kScalar:
      return "scalar";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

std::span<const SimdLevel> AvailableSimdLevels() {
  // Each level includes those before it.
  return std::span(kLevels).first(static_cast<size_t>(DetectSimdLevel()) + 1);
}

namespace optim_internal {

const OptimKernels& KernelsFor(SimdLevel level) {
  MAREA_CHECK(level <= DetectSimdLevel(), "this processor lacks the SIMD level asked for");
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return kAvx512Kernels;
  if (level == SimdLevel::kAvx2) return kAvx2Kernels;
#endif
  return kScalarKernels;
}

}  // namespace optim_internal
}  // namespace marea
