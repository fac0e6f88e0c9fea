#include <algorithm>

#include "engine/cuda/ordered_sum.cuh"
#include "engine/cuda/pack.cuh"
#include "engine/model/reduce_cuda.h"
#include "io/check.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

constexpr unsigned kThreads = 256;

struct Uses {
  const float* at[kReduceUsesMax];
  uint32_t count;
};

// The sum of squares of a block's rounded values, in its first kReduceLanes threads: a running sum
// each, then the pairs of ReduceBlock (addition commutes, so both sides of a pair agree).
__device__ double SumSquares(const float* rounded) {
  double sum = 0;
#pragma unroll 16
  for (unsigned k = threadIdx.x; k < kReduceBlockElements; k += kReduceLanes) {
    const double value = rounded[k];
    sum = __dadd_rn(sum, __dmul_rn(value, value));
  }
  constexpr unsigned kLanesMask = (1u << kReduceLanes) - 1;
#pragma unroll
  for (unsigned apart = 1; apart < kReduceLanes; apart *= 2) {
    sum = __dadd_rn(sum, __shfl_xor_sync(kLanesMask, sum, static_cast<int>(apart)));
  }
  return sum;
}

// One block of the grid is one block of the sum. REQUIRES: elements is a multiple of kWidth.
template <typename Held, int kWidth>
__global__ void __launch_bounds__(kThreads)
    ReduceKernel(const __grid_constant__ Uses uses, uint64_t elements, Held* held,
                 double* block_sums) {
  __shared__ float rounded[kReduceBlockElements];
  constexpr unsigned kStride = kThreads * kWidth;
  constexpr unsigned kPacks = kReduceBlockElements / kStride;
  const uint64_t first = blockIdx.x * kReduceBlockElements;
  Pack<float, kWidth> sums[kPacks];
#pragma unroll
  for (unsigned p = 0; p < kPacks; ++p) {
    const uint64_t i = first + p * kStride + threadIdx.x * kWidth;
    if (i < elements) sums[p] = LoadPack<kWidth>(uses.at[0] + i);
  }
  for (uint32_t u = 1; u < uses.count; ++u) {
#pragma unroll
    for (unsigned p = 0; p < kPacks; ++p) {
      const uint64_t i = first + p * kStride + threadIdx.x * kWidth;
      if (i >= elements) continue;
      const Pack<float, kWidth> values = LoadPack<kWidth>(uses.at[u] + i);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[p].at[k] = __fadd_rn(sums[p].at[k], values.at[k]);
    }
  }
#pragma unroll
  for (unsigned p = 0; p < kPacks; ++p) {
    const unsigned place = p * kStride + threadIdx.x * kWidth;
    Pack<Held, kWidth> result;
    Pack<float, kWidth> wide = {};  // +0 adds nothing
    if (first + place < elements) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        result.at[k] = HeldFrom<Held>(sums[p].at[k]);
        wide.at[k] = static_cast<float>(result.at[k]);
      }
      StorePack(held + first + place, result);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) rounded[place + k] = wide.at[k];
  }
  __syncthreads();
  if (threadIdx.x < kReduceLanes) {
    const double sum = SumSquares(rounded);
    if (threadIdx.x == 0) block_sums[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kOrderedSumThreads)
    AddBlockSumsKernel(const double* block_sums, uint64_t blocks, double* square_sum) {
  const double sum = OrderedSum(block_sums, blocks, 0.0);
  if (threadIdx.x == 0) *square_sum = PositiveNan(sum);
}

template <typename Held>
Status Launch(const Uses& uses, uint64_t elements, Held* held, double* block_sums,
              double* square_sum, cudaStream_t stream) {
  constexpr int kWidth = 4;
  bool packs = elements % kWidth == 0 && IsPackAligned(held, kWidth);
  for (uint32_t u = 0; u < uses.count; ++u) packs = packs && IsPackAligned(uses.at[u], kWidth);
  const uint64_t blocks = ReduceBlocks(elements);
  if (blocks > 0) {
    const auto kernel = packs ? ReduceKernel<Held, kWidth> : ReduceKernel<Held, 1>;
    kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(uses, elements, held,
                                                                   block_sums);
    MAREA_RETURN_IF_ERROR(LastCudaStatus("adding the uses of a gradient"));
  }
  AddBlockSumsKernel<<<1, kOrderedSumThreads, 0, stream>>>(block_sums, blocks, square_sum);
  return LastCudaStatus("adding the squares of a gradient");
}

}  // namespace

Status ReduceUsesOnGpu(std::span<const float* const> uses, uint64_t elements, void* held,
                       Precision held_precision, double* block_sums, double* square_sum,
                       cudaStream_t stream) {
  MAREA_CHECK(!uses.empty() && uses.size() <= kReduceUsesMax, "a gradient of too many or no uses");
  Uses all = {};
  std::copy(uses.begin(), uses.end(), all.at);
  all.count = static_cast<uint32_t>(uses.size());
  if (held_precision == Precision::kBf16) {
    return Launch(all, elements, static_cast<Bf16*>(held), block_sums, square_sum, stream);
  }
  return Launch(all, elements, static_cast<float*>(held), block_sums, square_sum, stream);
}

}  // namespace marea
