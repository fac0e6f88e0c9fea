#include "engine/cuda/launch.h"
#include "engine/cuda/pack.cuh"
#include "engine/optim/adamw_cuda.h"
#include "engine/optim/split_master.h"
#include "io/check.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kPacks = 2;  // a thread's loads in flight
constexpr int kBlocksPerProcessor = 8;

__device__ float CanonicalNan(float value) {
  return value == value ? value : __uint_as_float(0x7fc00000);
}

// The order and the rounding of UpdateVector in optim_kernels-inl.h.
template <bool kL2>
__device__ void UpdateElement(const AdamWConstants& constants, float gradient_scale, float gradient,
                              float& weight, float& moment1, float& moment2) {
  gradient = __fmul_rn(gradient, gradient_scale);
  if constexpr (kL2) {
    gradient = __fmaf_rn(constants.l2_weight_decay, weight, gradient);
  } else {
    weight = __fmul_rn(weight, constants.decay_factor);
  }
  moment1 = __fmaf_rn(__fsub_rn(gradient, moment1), constants.one_minus_beta1, moment1);
  moment2 = __fmaf_rn(__fmul_rn(constants.one_minus_beta2, gradient), gradient,
                      __fmul_rn(moment2, constants.beta2));
  const float denominator =
      __fmaf_rn(__fsqrt_rn(moment2), constants.inverse_sqrt_bias_correction2, constants.epsilon);
  weight = __fmaf_rn(-constants.step_size, __fdiv_rn(moment1, denominator), weight);
  weight = CanonicalNan(weight);
  moment1 = CanonicalNan(moment1);
  moment2 = CanonicalNan(moment2);
}

// What one thread updates at once. Only the forms in use are loaded.
template <bool kSplit, bool kBf16Gradient, bool kL2, int kWidth>
class Piece {
 public:
  __device__ void Load(const AdamWChunk& chunk, uint64_t i) {
    if constexpr (kSplit) {
      high_ = LoadPack<kWidth>(chunk.weight_bf16 + i);
      low_ = LoadPack<kWidth>(chunk.master_low + i);
    } else {
      weight_ = LoadPack<kWidth>(chunk.weight_fp32 + i);
    }
    if constexpr (kBf16Gradient) {
      gradient_bf16_ = LoadPack<kWidth>(chunk.gradient_bf16 + i);
    } else {
      gradient_ = LoadPack<kWidth>(chunk.gradient_fp32 + i);
    }
    moment1_ = LoadPack<kWidth>(chunk.moment1 + i);
    moment2_ = LoadPack<kWidth>(chunk.moment2 + i);
  }

  __device__ void Update(const AdamWConstants& constants, float gradient_scale) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      float weight;
      float gradient;
      if constexpr (kSplit) {
        weight = JoinMaster(high_.at[k], low_.at[k]);
      } else {
        weight = weight_.at[k];
      }
      if constexpr (kBf16Gradient) {
        gradient = FloatFromBf16(gradient_bf16_.at[k]);
      } else {
        gradient = gradient_.at[k];
      }
      UpdateElement<kL2>(constants, gradient_scale, gradient, weight, moment1_.at[k],
                         moment2_.at[k]);
      if constexpr (kSplit) {
        const SplitFloat split = SplitMaster(weight);
        high_.at[k] = split.high;
        low_.at[k] = split.low;
      } else {
        weight_.at[k] = weight;
      }
    }
  }

  __device__ void Store(const AdamWChunk& chunk, uint64_t i) const {
    if constexpr (kSplit) {
      StorePack(chunk.weight_bf16 + i, high_);
      StorePack(chunk.master_low + i, low_);
    } else {
      StorePack(chunk.weight_fp32 + i, weight_);
    }
    StorePack(chunk.moment1 + i, moment1_);
    StorePack(chunk.moment2 + i, moment2_);
  }

 private:
  Pack<uint16_t, kWidth> high_, low_, gradient_bf16_;
  Pack<float, kWidth> weight_, gradient_, moment1_, moment2_;
};

// Elements from `first`, a multiple of kWidth, to the end; their number is one too.
template <bool kSplit, bool kBf16Gradient, bool kL2, int kWidth>
__global__ void __launch_bounds__(kThreads)
    AdamWKernel(AdamWChunk chunk, uint64_t first, const double* gradient_scale,
                AdamWConstants constants) {
  // The scale may lie in host memory: one read a block.
  __shared__ float shared_scale;
  if (threadIdx.x == 0) shared_scale = __double2float_rn(*gradient_scale);
  __syncthreads();
  const float scale = shared_scale;

  constexpr uint64_t kBlockStride = uint64_t{kThreads} * kWidth;
  for (uint64_t tile = blockIdx.x;; tile += gridDim.x) {
    const uint64_t begin = first + tile * kPacks * kBlockStride;
    if (begin >= chunk.elements) return;
    Piece<kSplit, kBf16Gradient, kL2, kWidth> pieces[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const uint64_t i = begin + p * kBlockStride + threadIdx.x * kWidth;
      if (i < chunk.elements) pieces[p].Load(chunk, i);
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const uint64_t i = begin + p * kBlockStride + threadIdx.x * kWidth;
      if (i >= chunk.elements) continue;
      pieces[p].Update(constants, scale);
      pieces[p].Store(chunk, i);
    }
  }
}

template <bool kSplit, bool kBf16Gradient, bool kL2, int kWidth>
void Launch(const AdamWChunk& chunk, uint64_t first, const double* gradient_scale,
            const AdamWConstants& constants, cudaStream_t stream) {
  if (first == chunk.elements) return;
  constexpr uint64_t kTile = uint64_t{kThreads} * kWidth * kPacks;
  const uint64_t tiles = (chunk.elements - first + kTile - 1) / kTile;
  AdamWKernel<kSplit, kBf16Gradient, kL2, kWidth>
      <<<StridingBlocks(tiles, kBlocksPerProcessor), kThreads, 0, stream>>>(
          chunk, first, gradient_scale, constants);
}

// What packs of four cover, then the rest one by one.
template <bool kSplit, bool kBf16Gradient, bool kL2>
void LaunchAll(const AdamWChunk& chunk, const double* gradient_scale,
               const AdamWConstants& constants, cudaStream_t stream) {
  constexpr int kWidth = 4;
  const bool aligned =
      IsPackAligned(chunk.weight_bf16, kWidth) && IsPackAligned(chunk.master_low, kWidth) &&
      IsPackAligned(chunk.weight_fp32, kWidth) && IsPackAligned(chunk.gradient_bf16, kWidth) &&
      IsPackAligned(chunk.gradient_fp32, kWidth) && IsPackAligned(chunk.moment1, kWidth) &&
      IsPackAligned(chunk.moment2, kWidth);
  AdamWChunk packs = chunk;
  packs.elements = aligned ? chunk.elements - chunk.elements % kWidth : 0;
  Launch<kSplit, kBf16Gradient, kL2, kWidth>(packs, 0, gradient_scale, constants, stream);
  Launch<kSplit, kBf16Gradient, kL2, 1>(chunk, packs.elements, gradient_scale, constants, stream);
}

template <bool kSplit, bool kBf16Gradient>
void LaunchByDecay(const AdamWChunk& chunk, const double* gradient_scale,
                   const AdamWConstants& constants, cudaStream_t stream) {
  if (constants.l2_weight_decay != 0.0f) {
    LaunchAll<kSplit, kBf16Gradient, true>(chunk, gradient_scale, constants, stream);
  } else {
    LaunchAll<kSplit, kBf16Gradient, false>(chunk, gradient_scale, constants, stream);
  }
}

}  // namespace

Status AdamWOnGpu(const AdamWChunk& chunk, const double* gradient_scale,
                  const AdamWConstants& constants, cudaStream_t stream) {
  const bool split = chunk.weight_bf16 != nullptr;
  const bool bf16_gradient = chunk.gradient_bf16 != nullptr;
  MAREA_CHECK(split == (chunk.master_low != nullptr) && split == (chunk.weight_fp32 == nullptr),
              "AdamW needs exactly one form of the weight");
  MAREA_CHECK(bf16_gradient == (chunk.gradient_fp32 == nullptr),
              "AdamW needs exactly one form of the gradient");
  const auto launch =
      split ? (bf16_gradient ? LaunchByDecay<true, true> : LaunchByDecay<true, false>)
            : (bf16_gradient ? LaunchByDecay<false, true> : LaunchByDecay<false, false>);
  launch(chunk, gradient_scale, constants, stream);
  return LastCudaStatus("updating the weights");
}

}  // namespace marea
