// What a GPU does by marea's own kernels, on torch's stream: the twins of what the CPU does in
// loops, with the contracts of embedding.h, loss.h, reduce.h and tensor_views.h, for bytes in VRAM;
// and, in one kernel, what torch does in several. Tokens, labels and weights are the host's. Calls
// enqueue and return; a failure to enqueue is thrown as a c10::Error, as torch throws its own
// (BlockCompute makes it a Status). In a build without CUDA no run gets as far as a call.
//
// Thread rule: the thread that computes (EnterComputeStream).
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "engine/model/attention.h"
#include "engine/model/block_compute.h"
#include "engine/model/loss.h"
#include "engine/model/model_shape.h"
#include "engine/model/turn.h"
#include "engine/optim/adamw.h"

namespace marea::gpu {

void AddInto(float* target, const at::Tensor& source, Accumulate accumulate);

void EmbedForward(const ModelShape& model, const BatchShape& batch, Precision precision,
                  const int32_t* tokens, ByteSpans weights, ByteSpan output);
void EmbedBackward(const ModelShape& model, const BatchShape& batch, Precision precision,
                   const int32_t* tokens, ByteSpan gradient, float* token_accumulator,
                   float* position_accumulator, Accumulate accumulate);

// `loss_sum` is pinned host memory; its value is there when the stream has passed the call.
// The host's targets are copied before the call returns.
void CrossEntropy(const at::Tensor& hidden, const at::Tensor& output_matrix,
                  const LossTargets& targets, int64_t chunk_rows, double* loss_sum);
void CrossEntropyGradients(const at::Tensor& hidden, const at::Tensor& output_matrix,
                           const LossTargets& targets, int64_t chunk_rows, double scale,
                           at::Tensor& hidden_gradient, const OutputGradient& output,
                           double* loss_sum);

// `square_sum` is pinned host memory.
void Reduce(ByteSpans uses, ByteSpan held, Precision held_precision, double* square_sum);

// Heads turned by the table's angles, forth or back: x and the result are
// [sequences, length, heads * head_dim], contiguous.
at::Tensor Rotate(const at::Tensor& x, const RopeTable& table, Turn turn);

// silu(gate) * up, and the gradients of gate and up. All are contiguous and of one shape.
at::Tensor SiluTimes(const at::Tensor& gate, const at::Tensor& up);
std::pair<at::Tensor, at::Tensor> SiluTimesGradients(const at::Tensor& gate, const at::Tensor& up,
                                                     const at::Tensor& output_gradient);

// AdamW in VRAM, the CPU's bits. `gradient_scale` is pinned host memory, read on the GPU.
Status Update(const AdamWChunk& chunk, const double* gradient_scale,
              const AdamWConstants& constants, int gpu);

}  // namespace marea::gpu
