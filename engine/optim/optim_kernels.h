// The optimizer's inner loops, one set for each SIMD level. Private to engine/optim.
//
// Note [One source, three objects]: optim_kernels-inl.h is compiled once for each level, by
// optim_kernels_{scalar,avx2,avx512}.cc, with that level's compiler flags. Highway's own run-time
// dispatch would need libhwy on the machine that runs the binary; its headers alone do not. An
// object compiled with AVX flags must define nothing but its table: an inline function that it
// shared with other objects could be the copy that the linker keeps, and stop an older processor.
// So these headers stay plain, and a test reads the objects' symbols.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/optim/adamw.h"
#include "engine/optim/simd_level.h"

namespace marea::optim_internal {

struct OptimKernels {
  // AdamW on elements [first, last) of the chunk; see adamw.h.
  void (*adamw)(const AdamWChunk& chunk, const AdamWConstants& constants, size_t first,
                size_t last);
  // sums[b] = sum of squares of block b; see gradient_norm.h. The last block may be short.
  void (*block_sums_bf16)(const uint16_t* gradient, size_t elements, double* sums);
  void (*block_sums_fp32)(const float* gradient, size_t elements, double* sums);
};

extern const OptimKernels kScalarKernels;
#if defined(__x86_64__)
extern const OptimKernels kAvx2Kernels;
extern const OptimKernels kAvx512Kernels;
#endif

// REQUIRES: `level` is one of AvailableSimdLevels().
const OptimKernels& KernelsFor(SimdLevel level);

}  // namespace marea::optim_internal
