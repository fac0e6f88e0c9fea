#include <type_traits>

#include "engine/cuda/pack.cuh"
#include "engine/model/bf16.h"
#include "engine/model/silu_cuda.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

constexpr unsigned kThreads = 256;

template <typename Element, int kWidth>
__global__ void __launch_bounds__(kThreads)
    SiluTimesKernel(uint64_t first, uint64_t count, const Element* gate, const Element* up,
                    Element* output) {
  const uint64_t i = first + (uint64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= count) return;
  const auto gates = LoadPack<kWidth>(gate + i);
  const auto ups = LoadPack<kWidth>(up + i);
  Pack<Element, kWidth> products;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float x = static_cast<float>(gates.at[k]);
    const float silu = Rounded<Element>(x / (1.0f + expf(-x)));
    products.at[k] = Element(silu * static_cast<float>(ups.at[k]));
  }
  StorePack(output + i, products);
}

template <typename Element, int kWidth>
__global__ void __launch_bounds__(kThreads)
    GradientsKernel(uint64_t first, uint64_t count, const Element* gate, const Element* up,
                    const Element* output_gradient, Element* gate_gradient, Element* up_gradient) {
  const uint64_t i = first + (uint64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= count) return;
  const auto gates = LoadPack<kWidth>(gate + i);
  const auto ups = LoadPack<kWidth>(up + i);
  const auto gradients = LoadPack<kWidth>(output_gradient + i);
  Pack<Element, kWidth> of_gate;
  Pack<Element, kWidth> of_up;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float x = static_cast<float>(gates.at[k]);
    const float gradient = static_cast<float>(gradients.at[k]);
    const float power = 1.0f + expf(-x);
    const float silu = Rounded<Element>(x / power);
    of_up.at[k] = Element(gradient * silu);
    const float of_silu = Rounded<Element>(gradient * static_cast<float>(ups.at[k]));
    const float sigmoid = 1.0f / power;
    of_gate.at[k] = Element(of_silu * sigmoid * __fmaf_rn(x, 1.0f - sigmoid, 1.0f));
  }
  StorePack(gate_gradient + i, of_gate);
  StorePack(up_gradient + i, of_up);
}

// What whole packs cover, then the rest one by one. `launch` takes the width (as a constant), the
// first element, the end and the number of blocks.
template <int kWidth, typename Launch>
void InPacks(bool aligned, uint64_t count, const Launch& launch) {
  const auto blocks = [](uint64_t elements, uint64_t width) {
    return static_cast<unsigned>((elements / width + kThreads - 1) / kThreads);
  };
  const uint64_t packed = aligned ? count - count % kWidth : 0;
  if (packed > 0) launch(std::integral_constant<int, kWidth>(), 0, packed, blocks(packed, kWidth));
  if (packed < count) {
    launch(std::integral_constant<int, 1>(), packed, count, blocks(count - packed, 1));
  }
}

template <typename Element>
void SiluTimes(const void* gate_bytes, const void* up_bytes, uint64_t count, void* output_bytes,
               cudaStream_t stream) {
  constexpr int kWidth = kPackBytes / sizeof(Element);
  const auto* gate = static_cast<const Element*>(gate_bytes);
  const auto* up = static_cast<const Element*>(up_bytes);
  auto* output = static_cast<Element*>(output_bytes);
  const bool aligned =
      IsPackAligned(gate, kWidth) && IsPackAligned(up, kWidth) && IsPackAligned(output, kWidth);
  InPacks<kWidth>(aligned, count, [&](auto width, uint64_t first, uint64_t end, unsigned blocks) {
    SiluTimesKernel<Element, width()>
        <<<blocks, kThreads, 0, stream>>>(first, end, gate, up, output);
  });
}

template <typename Element>
void Gradients(const void* gate_bytes, const void* up_bytes, const void* output_gradient_bytes,
               uint64_t count, void* gate_gradient_bytes, void* up_gradient_bytes,
               cudaStream_t stream) {
  constexpr int kWidth = kPackBytes / sizeof(Element);
  const auto* gate = static_cast<const Element*>(gate_bytes);
  const auto* up = static_cast<const Element*>(up_bytes);
  const auto* output_gradient = static_cast<const Element*>(output_gradient_bytes);
  auto* gate_gradient = static_cast<Element*>(gate_gradient_bytes);
  auto* up_gradient = static_cast<Element*>(up_gradient_bytes);
  const bool aligned = IsPackAligned(gate, kWidth) && IsPackAligned(up, kWidth) &&
                       IsPackAligned(output_gradient, kWidth) &&
                       IsPackAligned(gate_gradient, kWidth) && IsPackAligned(up_gradient, kWidth);
  InPacks<kWidth>(aligned, count, [&](auto width, uint64_t first, uint64_t end, unsigned blocks) {
    GradientsKernel<Element, width()><<<blocks, kThreads, 0, stream>>>(
        first, end, gate, up, output_gradient, gate_gradient, up_gradient);
  });
}

}  // namespace

Status SiluTimesOnGpu(const void* gate, const void* up, Precision precision, uint64_t count,
                      void* output, cudaStream_t stream) {
  (precision == Precision::kBf16 ? SiluTimes<Bf16> : SiluTimes<float>)(gate, up, count, output,
                                                                       stream);
  return LastCudaStatus("multiplying by the gate");
}

Status SiluTimesGradientsOnGpu(const void* gate, const void* up, const void* output_gradient,
                               Precision precision, uint64_t count, void* gate_gradient,
                               void* up_gradient, cudaStream_t stream) {
  (precision == Precision::kBf16 ? Gradients<Bf16> : Gradients<float>)(gate, up, output_gradient,
                                                                       count, gate_gradient,
                                                                       up_gradient, stream);
  return LastCudaStatus("the gradients of gate and up");
}

}  // namespace marea
