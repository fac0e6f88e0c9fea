// The AVX2 level. Compiled with AVX2, FMA and BMI flags: include nothing more here.
#if defined(__x86_64__)
#define HWY_COMPILE_ONLY_STATIC
#include "engine/optim/optim_kernels-inl.h"

static_assert(HWY_TARGET == HWY_AVX2, "compiled with another level's flags");

namespace marea::optim_internal {

const OptimKernels kAvx2Kernels = {HWY_NAMESPACE::AdamW, HWY_NAMESPACE::BlockSumsBf16,
                                   HWY_NAMESPACE::BlockSumsFp32};

}  // namespace marea::optim_internal
#endif  // __x86_64__
