// The one source of the optimizer's inner loops: Note [One source, three objects] in
// optim_kernels.h, Note [Same bits everywhere] in adamw.h, Note [Fixed blocks] in gradient_norm.h.
//
// Included once by each optim_kernels_<level>.cc, which chooses Highway's target first and names
// the table afterwards. No include guard by intent.

#include <cmath>
#include <cstring>

#include "engine/optim/gradient_norm.h"
#include "engine/optim/optim_kernels.h"
#include "hwy/highway.h"

#if defined(HWY_DISABLE_BMI2_FMA)
#error "without FMA instructions Highway's MulAdd rounds twice, and levels would differ"
#endif

HWY_BEFORE_NAMESPACE();
namespace marea::optim_internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Float = hn::ScalableTag<float>;
using Uint = hn::RebindToUnsigned<Float>;
using Int = hn::RebindToSigned<Float>;
using Half = hn::Rebind<uint16_t, Float>;  // as many 16-bit lanes as there are floats
using HalfSigned = hn::Rebind<int16_t, Float>;
using FloatVector = hn::Vec<Float>;
inline constexpr size_t kLanes = hn::MaxLanes(Float());

// a * b + c, rounded once. Highway's scalar MulAdd rounds twice.
HWY_INLINE FloatVector FusedMulAdd(FloatVector a, FloatVector b, FloatVector c) {
#if HWY_TARGET == HWY_SCALAR
  return FloatVector(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}

HWY_INLINE FloatVector LoadBf16(const uint16_t* values) {
  const hn::Vec<Uint> wide = hn::PromoteTo(Uint(), hn::LoadU(Half(), values));
  return hn::BitCast(Float(), hn::ShiftLeft<16>(wide));
}

HWY_INLINE FloatVector LoadSplit(const uint16_t* high, const uint16_t* low) {
  const hn::Vec<HalfSigned> remainder = hn::BitCast(HalfSigned(), hn::LoadU(Half(), low));
  const hn::Vec<Uint> rounded = hn::BitCast(Uint(), LoadBf16(high));
  const hn::Vec<Uint> extended = hn::BitCast(Uint(), hn::PromoteTo(Int(), remainder));
  return hn::BitCast(Float(), hn::Add(rounded, extended));
}

// REQUIRES: NaNs are 0x7fc00000, for which the rounding below is already what SplitMaster stores.
HWY_INLINE void StoreSplit(FloatVector master, uint16_t* high, uint16_t* low) {
  const hn::Vec<Uint> bits = hn::BitCast(Uint(), master);
  const hn::Vec<Uint> rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Set(Uint(), 0x8000)));
  hn::StoreU(hn::TruncateTo(Half(), rounded), Half(), high);
  hn::StoreU(hn::TruncateTo(Half(), bits), Half(), low);
}

HWY_INLINE FloatVector CanonicalNan(FloatVector values) {
  const FloatVector nan = hn::BitCast(Float(), hn::Set(Uint(), 0x7fc00000));
  return hn::IfThenElse(hn::IsNaN(values), nan, values);
}

// One vector of elements, beginning at element i of `at`.
template <bool kSplit, bool kBf16Gradient, bool kL2>
HWY_INLINE void UpdateVector(const AdamWChunk& at, const AdamWConstants& constants, size_t i) {
  const Float d;
  FloatVector weight;
  FloatVector gradient;
  if constexpr (kSplit) {
    weight = LoadSplit(at.weight_bf16 + i, at.master_low + i);
  } else {
    weight = hn::LoadU(d, at.weight_fp32 + i);
  }
  if constexpr (kBf16Gradient) {
    gradient = LoadBf16(at.gradient_bf16 + i);
  } else {
    gradient = hn::LoadU(d, at.gradient_fp32 + i);
  }
  FloatVector moment1 = hn::LoadU(d, at.moment1 + i);
  FloatVector moment2 = hn::LoadU(d, at.moment2 + i);

  gradient = hn::Mul(gradient, hn::Set(d, at.gradient_scale));
  if constexpr (kL2) {
    gradient = FusedMulAdd(hn::Set(d, constants.l2_weight_decay), weight, gradient);
  } else {
    weight = hn::Mul(weight, hn::Set(d, constants.decay_factor));
  }
  moment1 = FusedMulAdd(hn::Sub(gradient, moment1), hn::Set(d, constants.one_minus_beta1), moment1);
  moment2 = FusedMulAdd(hn::Mul(hn::Set(d, constants.one_minus_beta2), gradient), gradient,
                        hn::Mul(moment2, hn::Set(d, constants.beta2)));
  const FloatVector denominator =
      FusedMulAdd(hn::Sqrt(moment2), hn::Set(d, constants.inverse_sqrt_bias_correction2),
                  hn::Set(d, constants.epsilon));
  weight = FusedMulAdd(hn::Set(d, -constants.step_size), hn::Div(moment1, denominator), weight);

  weight = CanonicalNan(weight);
  if constexpr (kSplit) {
    StoreSplit(weight, at.weight_bf16 + i, at.master_low + i);
  } else {
    hn::StoreU(weight, d, at.weight_fp32 + i);
  }
  hn::StoreU(CanonicalNan(moment1), d, at.moment1 + i);
  hn::StoreU(CanonicalNan(moment2), d, at.moment2 + i);
}

// Fewer elements than a vector holds: the same code on a padded copy.
template <bool kSplit, bool kBf16Gradient, bool kL2>
HWY_INLINE void UpdateTail(const AdamWChunk& at, const AdamWConstants& constants, size_t i,
                           size_t elements) {
  uint16_t weight_bf16[kLanes] = {}, master_low[kLanes] = {}, gradient_bf16[kLanes] = {};
  float weight_fp32[kLanes] = {}, gradient_fp32[kLanes] = {};
  float moment1[kLanes] = {}, moment2[kLanes] = {};
  const size_t half_bytes = elements * sizeof(uint16_t);
  const size_t float_bytes = elements * sizeof(float);
  if constexpr (kSplit) {
    std::memcpy(weight_bf16, at.weight_bf16 + i, half_bytes);
    std::memcpy(master_low, at.master_low + i, half_bytes);
  } else {
    std::memcpy(weight_fp32, at.weight_fp32 + i, float_bytes);
  }
  if constexpr (kBf16Gradient) {
    std::memcpy(gradient_bf16, at.gradient_bf16 + i, half_bytes);
  } else {
    std::memcpy(gradient_fp32, at.gradient_fp32 + i, float_bytes);
  }
  std::memcpy(moment1, at.moment1 + i, float_bytes);
  std::memcpy(moment2, at.moment2 + i, float_bytes);

  AdamWChunk padded;
  padded.weight_bf16 = weight_bf16;
  padded.master_low = master_low;
  padded.weight_fp32 = weight_fp32;
  padded.moment1 = moment1;
  padded.moment2 = moment2;
  padded.gradient_bf16 = gradient_bf16;
  padded.gradient_fp32 = gradient_fp32;
  padded.gradient_scale = at.gradient_scale;
  UpdateVector<kSplit, kBf16Gradient, kL2>(padded, constants, 0);

  if constexpr (kSplit) {
    std::memcpy(at.weight_bf16 + i, weight_bf16, half_bytes);
    std::memcpy(at.master_low + i, master_low, half_bytes);
  } else {
    std::memcpy(at.weight_fp32 + i, weight_fp32, float_bytes);
  }
  std::memcpy(at.moment1 + i, moment1, float_bytes);
  std::memcpy(at.moment2 + i, moment2, float_bytes);
}

template <bool kSplit, bool kBf16Gradient, bool kL2>
void UpdateRange(const AdamWChunk& chunk, const AdamWConstants& constants, size_t first,
                 size_t last) {
  // Copies, so that stores cannot be taken for changes of what they point to.
  const AdamWChunk at = chunk;
  const AdamWConstants own_constants = constants;
  size_t i = first;
  for (; i + kLanes <= last; i += kLanes) {
    UpdateVector<kSplit, kBf16Gradient, kL2>(at, own_constants, i);
  }
  if (i < last) UpdateTail<kSplit, kBf16Gradient, kL2>(at, own_constants, i, last - i);
}

template <bool kSplit, bool kBf16Gradient>
void UpdateByDecay(const AdamWChunk& chunk, const AdamWConstants& constants, size_t first,
                   size_t last) {
  if (constants.l2_weight_decay != 0.0f) {
    UpdateRange<kSplit, kBf16Gradient, true>(chunk, constants, first, last);
  } else {
    UpdateRange<kSplit, kBf16Gradient, false>(chunk, constants, first, last);
  }
}

void AdamW(const AdamWChunk& chunk, const AdamWConstants& constants, size_t first, size_t last) {
  const bool bf16_gradient = chunk.gradient_bf16 != nullptr;
  if (chunk.weight_bf16 != nullptr) {
    bf16_gradient ? UpdateByDecay<true, true>(chunk, constants, first, last)
                  : UpdateByDecay<true, false>(chunk, constants, first, last);
  } else {
    bf16_gradient ? UpdateByDecay<false, true>(chunk, constants, first, last)
                  : UpdateByDecay<false, false>(chunk, constants, first, last);
  }
}

// ---- sums of squares

using Double = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<Double>;
inline constexpr size_t kAccumulators = 8;
inline constexpr size_t kDoubleLanes = hn::MaxLanes(Double());
inline constexpr size_t kDoubleVectors = kAccumulators / kDoubleLanes;

HWY_INLINE DoubleVector LoadDoubles(const float* values) {
  return hn::PromoteTo(Double(), hn::LoadU(hn::Rebind<float, Double>(), values));
}

HWY_INLINE DoubleVector LoadDoubles(const uint16_t* values) {
  const hn::Rebind<uint32_t, Double> wide;
  const auto bits = hn::PromoteTo(wide, hn::LoadU(hn::Rebind<uint16_t, Double>(), values));
  const auto floats = hn::BitCast(hn::Rebind<float, Double>(), hn::ShiftLeft<16>(bits));
  return hn::PromoteTo(Double(), floats);
}

// The sum of squares of kNormBlockElements values.
template <typename T>
HWY_INLINE double BlockSum(const T* values) {
  const Double d;
  DoubleVector accumulators[kDoubleVectors];
  for (size_t k = 0; k < kDoubleVectors; ++k) accumulators[k] = hn::Zero(d);
  for (size_t j = 0; j < kNormBlockElements; j += kAccumulators) {
    for (size_t k = 0; k < kDoubleVectors; ++k) {
      const DoubleVector value = LoadDoubles(values + j + k * kDoubleLanes);
      accumulators[k] = hn::Add(accumulators[k], hn::Mul(value, value));
    }
  }
  double lane[kAccumulators];
  for (size_t k = 0; k < kDoubleVectors; ++k) {
    hn::StoreU(accumulators[k], d, lane + k * kDoubleLanes);
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

template <typename T>
HWY_INLINE void BlockSums(const T* gradient, size_t elements, double* sums) {
  const size_t whole_blocks = elements / kNormBlockElements;
  for (size_t b = 0; b < whole_blocks; ++b) sums[b] = BlockSum(gradient + b * kNormBlockElements);
  const size_t rest = elements % kNormBlockElements;
  if (rest != 0) {
    T padded[kNormBlockElements] = {};  // +0 adds nothing
    std::memcpy(padded, gradient + whole_blocks * kNormBlockElements, rest * sizeof(T));
    sums[whole_blocks] = BlockSum(padded);
  }
}

void BlockSumsBf16(const uint16_t* gradient, size_t elements, double* sums) {
  BlockSums(gradient, elements, sums);
}

void BlockSumsFp32(const float* gradient, size_t elements, double* sums) {
  BlockSums(gradient, elements, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace marea::optim_internal
HWY_AFTER_NAMESPACE();
