#include "engine/cuda/pack.cuh"
#include "engine/model/bf16.h"
#include "engine/model/rope_cuda.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

constexpr unsigned kThreads = 256;

// a * b + c * d: both products rounded, and their sum.
template <typename Element>
__device__ Element SumOfProducts(Element a, Element b, Element c, float d) {
  return Element(
      __fadd_rn(Rounded<Element>(__fmul_rn(static_cast<float>(a), static_cast<float>(b))),
                Rounded<Element>(__fmul_rn(static_cast<float>(c), d))));
}

// A thread turns kWidth pairs: those at `column` of a head's first half and of its second.
template <typename Element, Turn kTurn, int kWidth>
__global__ void __launch_bounds__(kThreads)
    RotateKernel(RopeRows shape, uint64_t packs, const Element* input, const Element* cosine,
                 const Element* sine, Element* output) {
  const uint64_t pack = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const uint32_t half = shape.head_dim / 2;
  const uint64_t head = pack / (half / kWidth);
  const uint32_t column = static_cast<uint32_t>(pack % (half / kWidth)) * kWidth;
  const uint64_t angle = head / shape.heads % shape.length * shape.head_dim + column;
  const uint64_t at = head * shape.head_dim + column;
  const auto first = LoadPack<kWidth>(input + at);
  const auto second = LoadPack<kWidth>(input + at + half);
  const auto cosines = LoadPack<kWidth>(cosine + angle);
  const auto sines = LoadPack<kWidth>(sine + angle);
  Pack<Element, kWidth> turned_first;
  Pack<Element, kWidth> turned_second;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float wide = static_cast<float>(sines.at[k]);
    const float turn = kTurn == Turn::kForth ? wide : -wide;
    turned_first.at[k] = SumOfProducts(first.at[k], cosines.at[k], second.at[k], -turn);
    turned_second.at[k] = SumOfProducts(second.at[k], cosines.at[k], first.at[k], turn);
  }
  StorePack(output + at, turned_first);
  StorePack(output + at + half, turned_second);
}

template <typename Element, int kWidth>
void Launch(const RopeRows& shape, const Element* input, const Element* cosine, const Element* sine,
            Turn turn, Element* output, cudaStream_t stream) {
  const uint64_t packs = uint64_t{shape.rows} * shape.heads * (shape.head_dim / 2 / kWidth);
  const auto kernel = turn == Turn::kForth ? RotateKernel<Element, Turn::kForth, kWidth>
                                           : RotateKernel<Element, Turn::kBack, kWidth>;
  const auto blocks = static_cast<unsigned>((packs + kThreads - 1) / kThreads);
  kernel<<<blocks, kThreads, 0, stream>>>(shape, packs, input, cosine, sine, output);
}

template <typename Element>
void Rotate(const RopeRows& shape, const void* input_bytes, const void* cosine_bytes,
            const void* sine_bytes, Turn turn, void* output_bytes, cudaStream_t stream) {
  constexpr int kWidth = kPackBytes / sizeof(Element);
  const auto* input = static_cast<const Element*>(input_bytes);
  const auto* cosine = static_cast<const Element*>(cosine_bytes);
  const auto* sine = static_cast<const Element*>(sine_bytes);
  auto* output = static_cast<Element*>(output_bytes);
  const bool packs = shape.head_dim / 2 % kWidth == 0 && IsPackAligned(input, kWidth) &&
                     IsPackAligned(cosine, kWidth) && IsPackAligned(sine, kWidth) &&
                     IsPackAligned(output, kWidth);
  const auto launch = packs ? Launch<Element, kWidth> : Launch<Element, 1>;
  launch(shape, input, cosine, sine, turn, output, stream);
}

}  // namespace

Status RotateOnGpu(const RopeRows& shape, Precision precision, const void* input,
                   const void* cosine, const void* sine, Turn turn, void* output,
                   cudaStream_t stream) {
  const auto rotate = precision == Precision::kBf16 ? Rotate<Bf16> : Rotate<float>;
  rotate(shape, input, cosine, sine, turn, output, stream);
  return LastCudaStatus("turning by the rotary position embedding");
}

}  // namespace marea
