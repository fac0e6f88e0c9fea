#include "engine/cuda/pack.cuh"
#include "engine/model/bf16.h"
#include "engine/model/embedding_cuda.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

constexpr unsigned kThreads = 128;
constexpr int kWidth = 4;  // columns of a thread where rows are aligned to packs

// blockIdx.x is the row (or what stands for it), blockIdx.y the tile of columns.
template <int kPack>
dim3 Grid(uint32_t rows, uint32_t hidden) {
  const uint32_t columns = kThreads * kPack;
  return dim3(rows, (hidden + columns - 1) / columns);
}

template <int kPack>
__device__ uint32_t FirstColumn() {
  return (blockIdx.y * kThreads + threadIdx.x) * kPack;
}

template <typename Element, bool kPositions, int kPack>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(uint32_t sequence_length, uint32_t hidden, const int32_t* tokens,
                  const Element* token_table, const Element* position_table, Element* output) {
  const uint32_t column = FirstColumn<kPack>();
  if (column >= hidden) return;
  const uint64_t row = blockIdx.x;
  const uint64_t token = static_cast<uint32_t>(tokens[row]);
  Pack<Element, kPack> values = LoadPack<kPack>(token_table + token * hidden + column);
  if constexpr (kPositions) {
    const uint64_t position = row % sequence_length;
    const auto added = LoadPack<kPack>(position_table + position * hidden + column);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      values.at[k] = static_cast<Element>(
          __fadd_rn(static_cast<float>(values.at[k]), static_cast<float>(added.at[k])));
    }
  }
  StorePack(output + row * hidden + column, values);
}

// Adds `count` rows of the gradient to the sum, one after another; row_of(n) is the n-th. Loads run
// ahead of the additions.
template <int kPack, typename Element, typename RowOf>
__device__ void AddRows(float* sum_at, uint32_t count, uint32_t hidden, uint32_t column,
                        const Element* gradient, const RowOf& row_of) {
  constexpr uint32_t kAhead = 8;
  Pack<float, kPack> sum = LoadPack<kPack>(sum_at + column);
  for (uint32_t first = 0; first < count; first += kAhead) {
    Pack<Element, kPack> values[kAhead];
#pragma unroll
    for (uint32_t n = 0; n < kAhead; ++n) {
      if (first + n >= count) continue;
      values[n] = LoadPack<kPack>(gradient + uint64_t{row_of(first + n)} * hidden + column);
    }
#pragma unroll
    for (uint32_t n = 0; n < kAhead; ++n) {
      if (first + n >= count) continue;
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        sum.at[k] = __fadd_rn(sum.at[k], static_cast<float>(values[n].at[k]));
      }
    }
  }
  StorePack(sum_at + column, sum);
}

template <typename Element, int kPack>
__global__ void __launch_bounds__(kThreads)
    AddTokensKernel(TokenGroups groups, uint32_t hidden, const Element* gradient, float* sums) {
  const uint32_t column = FirstColumn<kPack>();
  if (column >= hidden) return;
  const uint32_t begin = groups.begins[blockIdx.x];
  const uint32_t count = groups.begins[blockIdx.x + 1] - begin;
  const uint64_t token = static_cast<uint32_t>(groups.tokens[blockIdx.x]);
  AddRows<kPack>(sums + token * hidden, count, hidden, column, gradient,
                 [&](uint32_t n) { return groups.rows[begin + n]; });
}

template <typename Element, int kPack>
__global__ void __launch_bounds__(kThreads)
    AddPositionsKernel(uint32_t sequences, uint32_t sequence_length, uint32_t hidden,
                       const Element* gradient, float* sums) {
  const uint32_t column = FirstColumn<kPack>();
  if (column >= hidden) return;
  AddRows<kPack>(sums + uint64_t{blockIdx.x} * hidden, sequences, hidden, column, gradient,
                 [&](uint32_t n) { return n * sequence_length + blockIdx.x; });
}

template <typename Element, int kPack>
Status Forward(const BatchShape& batch, uint32_t hidden, const int32_t* tokens,
               const Element* token_table, const Element* position_table, Element* output,
               cudaStream_t stream) {
  const auto kernel = position_table != nullptr ? ForwardKernel<Element, true, kPack>
                                                : ForwardKernel<Element, false, kPack>;
  kernel<<<Grid<kPack>(batch.sequences * batch.sequence_length, hidden), kThreads, 0, stream>>>(
      batch.sequence_length, hidden, tokens, token_table, position_table, output);
  return LastCudaStatus("looking up the embeddings");
}

template <typename Element, int kPack>
Status Backward(const BatchShape& batch, uint32_t hidden, const TokenGroups& groups,
                const Element* gradient, const EmbedSums& sums, cudaStream_t stream) {
  if (sums.tokens != nullptr && groups.count > 0) {
    AddTokensKernel<Element, kPack><<<Grid<kPack>(groups.count, hidden), kThreads, 0, stream>>>(
        groups, hidden, gradient, sums.tokens);
    MAREA_RETURN_IF_ERROR(LastCudaStatus("adding the gradients of the token embeddings"));
  }
  if (sums.positions == nullptr) return Status::Ok();
  AddPositionsKernel<Element, kPack>
      <<<Grid<kPack>(batch.sequence_length, hidden), kThreads, 0, stream>>>(
          batch.sequences, batch.sequence_length, hidden, gradient, sums.positions);
  return LastCudaStatus("adding the gradients of the position embeddings");
}

template <typename Element>
Status ForwardOf(const BatchShape& batch, uint32_t hidden, const int32_t* tokens,
                 const EmbedTables& tables, void* output_bytes, cudaStream_t stream) {
  const auto* token_table = static_cast<const Element*>(tables.tokens);
  const auto* position_table = static_cast<const Element*>(tables.positions);
  auto* output = static_cast<Element*>(output_bytes);
  const bool packs = hidden % kWidth == 0 && IsPackAligned(token_table, kWidth) &&
                     IsPackAligned(position_table, kWidth) && IsPackAligned(output, kWidth);
  const auto forward = packs ? Forward<Element, kWidth> : Forward<Element, 1>;
  return forward(batch, hidden, tokens, token_table, position_table, output, stream);
}

template <typename Element>
Status BackwardOf(const BatchShape& batch, uint32_t hidden, const TokenGroups& groups,
                  const void* gradient_bytes, const EmbedSums& sums, cudaStream_t stream) {
  const auto* gradient = static_cast<const Element*>(gradient_bytes);
  const bool packs = hidden % kWidth == 0 && IsPackAligned(gradient, kWidth) &&
                     IsPackAligned(sums.tokens, kWidth) && IsPackAligned(sums.positions, kWidth);
  const auto backward = packs ? Backward<Element, kWidth> : Backward<Element, 1>;
  return backward(batch, hidden, groups, gradient, sums, stream);
}

Status Zero(float* sums, uint64_t elements, cudaStream_t stream) {
  if (sums == nullptr) return Status::Ok();
  return CudaStatus(cudaMemsetAsync(sums, 0, elements * sizeof(float), stream),
                    "zeroing the gradients of the embeddings");
}

}  // namespace

Status EmbedForwardOnGpu(const BatchShape& batch, uint32_t hidden, Precision precision,
                         const int32_t* tokens, const EmbedTables& tables, void* output,
                         cudaStream_t stream) {
  if (precision == Precision::kBf16) {
    return ForwardOf<Bf16>(batch, hidden, tokens, tables, output, stream);
  }
  return ForwardOf<float>(batch, hidden, tokens, tables, output, stream);
}

Status EmbedBackwardOnGpu(const BatchShape& batch, uint32_t hidden, Precision precision,
                          const TokenGroups& groups, const void* gradient, const EmbedSums& sums,
                          Accumulate mode, cudaStream_t stream) {
  if (mode == Accumulate::kFirst) {
    MAREA_RETURN_IF_ERROR(Zero(sums.tokens, sums.token_elements, stream));
    MAREA_RETURN_IF_ERROR(Zero(sums.positions, sums.position_elements, stream));
  }
  if (precision == Precision::kBf16) {
    return BackwardOf<Bf16>(batch, hidden, groups, gradient, sums, stream);
  }
  return BackwardOf<float>(batch, hidden, groups, gradient, sums, stream);
}

}  // namespace marea
