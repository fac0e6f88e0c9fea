#include "engine/cuda/launch.h"
#include "engine/cuda/pack.cuh"
#include "engine/model/accumulate_cuda.h"
#include "engine/model/bf16.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kPacks = 4;  // a thread's loads in flight
constexpr int kBlocksPerProcessor = 8;

// Values from `first`, a multiple of kWidth, to `count`, one too.
template <typename Source, Accumulate kMode, int kWidth>
__global__ void __launch_bounds__(kThreads)
    AccumulateKernel(float* target, const Source* source, uint64_t first, uint64_t count) {
  constexpr uint64_t kBlockStride = uint64_t{kThreads} * kWidth;
  for (uint64_t tile = blockIdx.x;; tile += gridDim.x) {
    const uint64_t begin = first + tile * kPacks * kBlockStride;
    if (begin >= count) return;
    Pack<Source, kWidth> values[kPacks];
    Pack<float, kWidth> sums[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const uint64_t i = begin + p * kBlockStride + threadIdx.x * kWidth;
      if (i >= count) continue;
      values[p] = LoadPack<kWidth>(source + i);
      if constexpr (kMode == Accumulate::kAdd) sums[p] = LoadPack<kWidth>(target + i);
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const uint64_t i = begin + p * kBlockStride + threadIdx.x * kWidth;
      if (i >= count) continue;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float value = static_cast<float>(values[p].at[k]);
        sums[p].at[k] = kMode == Accumulate::kAdd ? __fadd_rn(sums[p].at[k], value) : value;
      }
      StorePack(target + i, sums[p]);
    }
  }
}

template <typename Source, Accumulate kMode, int kWidth>
void Launch(float* target, const Source* source, uint64_t first, uint64_t count,
            cudaStream_t stream) {
  if (first == count) return;
  constexpr uint64_t kTile = uint64_t{kThreads} * kWidth * kPacks;
  const uint64_t tiles = (count - first + kTile - 1) / kTile;
  AccumulateKernel<Source, kMode, kWidth>
      <<<StridingBlocks(tiles, kBlocksPerProcessor), kThreads, 0, stream>>>(target, source, first,
                                                                            count);
}

// What packs of four cover, then the rest one by one.
template <typename Source, Accumulate kMode>
void LaunchAll(float* target, const void* source, uint64_t count, cudaStream_t stream) {
  constexpr int kWidth = 4;
  const Source* values = static_cast<const Source*>(source);
  const bool aligned = IsPackAligned(target, kWidth) && IsPackAligned(values, kWidth);
  const uint64_t packs = aligned ? count - count % kWidth : 0;
  Launch<Source, kMode, kWidth>(target, values, 0, packs, stream);
  Launch<Source, kMode, 1>(target, values, packs, count, stream);
}

template <typename Source>
void LaunchByMode(float* target, const void* source, uint64_t count, Accumulate mode,
                  cudaStream_t stream) {
  if (mode == Accumulate::kFirst) {
    LaunchAll<Source, Accumulate::kFirst>(target, source, count, stream);
  } else {
    LaunchAll<Source, Accumulate::kAdd>(target, source, count, stream);
  }
}

}  // namespace

Status AccumulateOnGpu(float* target, const void* source, Precision source_precision,
                       uint64_t count, Accumulate mode, cudaStream_t stream) {
  if (source_precision == Precision::kBf16) {
    LaunchByMode<Bf16>(target, source, count, mode, stream);
  } else {
    LaunchByMode<float>(target, source, count, mode, stream);
  }
  return LastCudaStatus("adding a gradient to its sum");
}

}  // namespace marea
