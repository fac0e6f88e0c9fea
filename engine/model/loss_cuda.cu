#include <algorithm>
#include <limits>

#include "engine/cuda/ordered_sum.cuh"
#include "engine/cuda/pack.cuh"
#include "engine/model/bf16.h"
#include "engine/model/loss_cuda.h"
#include "io/check.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kThreadsMax = 1024;
constexpr int64_t kPackBytes = 16;

// A row of logits as packs of 16 bytes on a grid that is aligned in memory. Rows of an odd
// vocabulary begin and end inside a pack; what of such a pack is not the row's is left alone.
template <typename T>
class Row {
 public:
  static constexpr int kWidth = kPackBytes / sizeof(T);

  __device__ Row(T* logits, uint64_t row, uint32_t vocabulary)
      : vocabulary_(vocabulary), before_(static_cast<int>(row * vocabulary % kWidth)) {
    grid_ = logits + (row * vocabulary - before_);
    packs_ = (before_ + vocabulary_ + kWidth - 1) / kWidth;
  }

  __device__ int64_t packs() const { return packs_; }
  // The row's index of a pack's first value; below 0 in a first pack that begins before the row.
  __device__ int64_t FirstIndex(int64_t pack) const { return pack * kWidth - before_; }
  __device__ float At(int64_t index) const { return static_cast<float>(grid_[before_ + index]); }

  // The pack's values; -infinity for those that are not the row's.
  __device__ Pack<float, kWidth> Load(int64_t pack) const {
    Pack<float, kWidth> values;
    if (IsWhole(pack)) {
      const auto loaded = LoadPack<kWidth>(grid_ + pack * kWidth);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values.at[k] = static_cast<float>(loaded.at[k]);
      return values;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      values.at[k] = Holds(FirstIndex(pack) + k) ? static_cast<float>(grid_[pack * kWidth + k])
                                                 : -std::numeric_limits<float>::infinity();
    }
    return values;
  }

  __device__ void Store(int64_t pack, const Pack<float, kWidth>& values) const {
    Pack<T, kWidth> rounded;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) rounded.at[k] = static_cast<T>(values.at[k]);
    if (IsWhole(pack)) {
      StorePack(grid_ + pack * kWidth, rounded);
      return;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (Holds(FirstIndex(pack) + k)) grid_[pack * kWidth + k] = rounded.at[k];
    }
  }

 private:
  __device__ bool Holds(int64_t index) const {
    return index >= 0 && index < vocabulary_;
  }
  __device__ bool IsWhole(int64_t pack) const {
    return FirstIndex(pack) >= 0 && FirstIndex(pack) + kWidth <= vocabulary_;
  }

  T* grid_;
  int64_t packs_;
  int64_t vocabulary_;
  int before_;  // values of the grid's first pack that are not the row's
};

// exp(x - max) summed over some x, and their maximum.
struct ExpSum {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
};

// exp(value - max), where a maximum of -infinity (no value yet) takes nothing off.
__device__ float ExpOff(float value, float max) {
  return expf(value - (max == -std::numeric_limits<float>::infinity() ? 0.0f : max));
}

__device__ ExpSum Joined(const ExpSum& a, const ExpSum& b) {
  ExpSum both;
  both.max = fmaxf(a.max, b.max);
  both.sum = a.sum * ExpOff(a.max, both.max) + b.sum * ExpOff(b.max, both.max);
  return both;
}

// The whole block's, in every thread: pairs within a warp, then the warps one by one.
__device__ ExpSum OverBlock(ExpSum own) {
  __shared__ ExpSum of_warp[kThreadsMax / kWarp];
#pragma unroll
  for (unsigned apart = kWarp / 2; apart > 0; apart /= 2) {
    const ExpSum other = {__shfl_down_sync(~0u, own.max, apart),
                          __shfl_down_sync(~0u, own.sum, apart)};
    own = Joined(own, other);
  }
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = own;
  __syncthreads();
  ExpSum all = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) all = Joined(all, of_warp[w]);
  return all;
}

template <typename T>
__device__ ExpSum OverRow(const Row<T>& row) {
  ExpSum own;
  for (int64_t pack = threadIdx.x; pack < row.packs(); pack += blockDim.x) {
    const auto values = row.Load(pack);
    float max = own.max;
#pragma unroll
    for (int k = 0; k < Row<T>::kWidth; ++k) max = fmaxf(max, values.at[k]);
    own.sum *= ExpOff(own.max, max);
    own.max = max;
#pragma unroll
    for (int k = 0; k < Row<T>::kWidth; ++k) own.sum += ExpOff(values.at[k], max);
  }
  return OverBlock(own);
}

// One block a row. `scale` is used with kGradients only.
template <typename T, bool kGradients>
__global__ void __launch_bounds__(kThreadsMax)
    CrossEntropyKernel(T* logits, uint32_t vocabulary, const int32_t* labels, const float* weights,
                       double* row_losses, double scale) {
  const Row<T> row(logits, blockIdx.x, vocabulary);
  const float weight = weights[blockIdx.x];
  if (weight == 0.0f) {
    if (threadIdx.x == 0) row_losses[blockIdx.x] = 0.0;
    if constexpr (kGradients) {
      for (int64_t pack = threadIdx.x; pack < row.packs(); pack += blockDim.x) row.Store(pack, {});
    }
    return;
  }
  const int64_t label = labels[blockIdx.x];
  float label_logit = 0.0f;
  if (threadIdx.x == 0) label_logit = row.At(label);  // before it is overwritten
  const ExpSum all = OverRow(row);                    // waits for every thread
  if (threadIdx.x == 0) {
    const double loss = log(double{all.sum}) + (double{all.max} - double{label_logit});
    row_losses[blockIdx.x] = double{weight} * loss;
  }
  if constexpr (kGradients) {
    const float row_scale = static_cast<float>(double{weight} * scale);
    const float inverse_sum = 1.0f / all.sum;
    for (int64_t pack = threadIdx.x; pack < row.packs(); pack += blockDim.x) {
      auto values = row.Load(pack);
      const int64_t first = row.FirstIndex(pack);
#pragma unroll
      for (int k = 0; k < Row<T>::kWidth; ++k) {
        const float probability = ExpOff(values.at[k], all.max) * inverse_sum;
        values.at[k] = (probability - (first + k == label ? 1.0f : 0.0f)) * row_scale;
      }
      row.Store(pack, values);
    }
  }
}

__global__ void __launch_bounds__(kOrderedSumThreads)
    AddRowLossesKernel(const double* row_losses, uint64_t rows, double* total, Accumulate mode) {
  const double before = threadIdx.x == 0 && mode == Accumulate::kAdd ? *total : 0.0;
  const double sum = OrderedSum(row_losses, rows, before);
  if (threadIdx.x == 0) *total = sum;
}

// Whole warps with a few packs a thread; it follows from the vocabulary alone, as the bits do.
unsigned ThreadsFor(uint32_t vocabulary, int width) {
  constexpr unsigned kPacksPerThread = 4;
  const unsigned values = kWarp * kPacksPerThread * static_cast<unsigned>(width);
  return std::min(kThreadsMax, (vocabulary / values + 1) * kWarp);
}

template <typename T, bool kGradients>
Status Launch(const LogitsChunk& chunk, double scale, cudaStream_t stream) {
  MAREA_CHECK(chunk.rows > 0 && chunk.vocabulary > 0, "a chunk without logits");
  MAREA_CHECK(reinterpret_cast<uintptr_t>(chunk.logits) % kPackBytes == 0,
              "logits must be aligned to 16 bytes");
  CrossEntropyKernel<T, kGradients>
      <<<chunk.rows, ThreadsFor(chunk.vocabulary, Row<T>::kWidth), 0, stream>>>(
          static_cast<T*>(chunk.logits), chunk.vocabulary, chunk.labels, chunk.weights,
          chunk.row_losses, scale);
  return LastCudaStatus("computing the loss");
}

}  // namespace

Status CrossEntropyOnGpu(const LogitsChunk& chunk, cudaStream_t stream) {
  if (chunk.precision == Precision::kBf16) return Launch<Bf16, false>(chunk, 0.0, stream);
  return Launch<float, false>(chunk, 0.0, stream);
}

Status CrossEntropyGradientsOnGpu(const LogitsChunk& chunk, double scale, cudaStream_t stream) {
  if (chunk.precision == Precision::kBf16) return Launch<Bf16, true>(chunk, scale, stream);
  return Launch<float, true>(chunk, scale, stream);
}

Status AddRowLossesOnGpu(const double* row_losses, uint64_t rows, double* total, Accumulate mode,
                         cudaStream_t stream) {
  AddRowLossesKernel<<<1, kOrderedSumThreads, 0, stream>>>(row_losses, rows, total, mode);
  return LastCudaStatus("adding the losses of the rows");
}

}  // namespace marea
