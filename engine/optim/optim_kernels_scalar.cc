// The reference level: no vector instructions, std::fma from the C library where there is no
// instruction for it.
#define HWY_COMPILE_ONLY_SCALAR
#include "engine/optim/optim_kernels-inl.h"

static_assert(HWY_TARGET == HWY_SCALAR, "compiled with another level's flags");

namespace marea::optim_internal {

const OptimKernels kScalarKernels = {HWY_NAMESPACE::AdamW, HWY_NAMESPACE::BlockSumsBf16,
                                     HWY_NAMESPACE::BlockSumsFp32};

}  // namespace marea::optim_internal
