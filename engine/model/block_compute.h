// The arithmetic of a model, block by block, on bytes that the plan placed.
//
// Every call works on views of the caller's spans: weights, activations, gradients and accumulators
// are never copied into tensors of torch's own. What torch allocates while a call runs is the
// block's workspace (BlockShape::forward_workspace_bytes, backward_workspace_bytes), and is free
// again when the call returns.
//
// Layouts. Activations and their gradients: [sequences, sequence_length, hidden], contiguous, in
// the compute type (bf16 or fp32). Weights: one span per group of BlockShape::groups, in that
// order, in the compute type, laid out as GroupShape says. Accumulators: fp32, one span per
// *trainable* group of the block in the same order (a frozen group has none), laid out as the
// group. Spans have exactly these sizes; anything else is a programmer error and stops the process.
//
// Where the CPU has no fast product of bf16, a block computes in fp32 on widened copies (which are
// part of its workspace) and rounds what leaves it: ComputeTarget::widens_bf16.
//
// Sums. Micro-batches of one step must be accumulated in ascending order, the first with kFirst:
// then no grouping into waves changes a bit. At a fixed thread count the same inputs give the same
// bits.
//
// Owner: the trainer. Thread rule: one call at a time; after Create every call but Reduce is made
// by the same thread (torch keeps its thread count by thread, see torch_runtime.h). All calls
// block. On failure the outputs and accumulators hold unspecified values and the object may be used
// again.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/data/micro_batch.h"
#include "engine/model/accumulate.h"
#include "engine/model/model_shape.h"
#include "engine/model/reduce_block.h"
#include "io/status.h"

namespace marea {

using ByteSpan = std::span<std::byte>;
using ByteSpans = std::span<const ByteSpan>;  // as OpCall::spans

class BlockCompute {
 public:
  // Prepares tables (RoPE) on `device`: ModelShape::compute_fixed_bytes. On a GPU calls enqueue and
  // return (torch_cuda.h); spans are then in VRAM, and `loss_sum` and `square_sum` pinned host
  // memory. REQUIRES: the device is the one that `model` was made for (ModelShape::target).
  static Result<std::unique_ptr<BlockCompute>> Create(const ModelShape& model,
                                                      const BatchShape& batch, Precision precision,
                                                      c10::Device device);
  ~BlockCompute();
  BlockCompute(const BlockCompute&) = delete;
  BlockCompute& operator=(const BlockCompute&) = delete;

  // output = block(input). `input` is empty for the embedding. Not for the head.
  // InvalidArgument where a token is outside the vocabulary.
  Status Forward(uint32_t block, const MicroBatch& micro_batch, ByteSpans weights, ByteSpan input,
                 ByteSpan output);

  // Recomputes the block from `input`, replaces the output's gradient in `gradient` by the input's,
  // and adds the parameters' gradients into the accumulators. The embedding only reads `gradient`.
  // Not for the head.
  Status Backward(uint32_t block, const MicroBatch& micro_batch, ByteSpans weights, ByteSpan input,
                  ByteSpan gradient, ByteSpans accumulators, Accumulate accumulate);

  // The head, forward and backward: writes sum(w_t * cross_entropy_t) to `loss_sum`, and the
  // gradients of loss_sum / total_weight to `input_gradient` and the accumulators. `total_weight`
  // is the sum of the weights of the whole step (all micro-batches and ranks); if it is 0 every
  // gradient is 0. The logits of a micro-batch never exist at once (LossChunkRows).
  // InvalidArgument where a label with weight is outside the vocabulary.
  Status ForwardBackward(uint32_t block, const MicroBatch& micro_batch, ByteSpans weights,
                         ByteSpan input, ByteSpan input_gradient, ByteSpans accumulators,
                         Accumulate accumulate, double total_weight, double* loss_sum);

  // The head in evaluation: the same loss sum, nothing else.
  Status HeadEval(uint32_t block, const MicroBatch& micro_batch, ByteSpans weights, ByteSpan input,
                  double* loss_sum);

  // held = round(sum of the uses' accumulators, in the order given), in `held_precision`; writes
  // the sum of squares of the rounded values to `square_sum`, in double over fixed blocks of
  // kReduceBlockElements in order, so that neither chunks nor threads change a bit of it.
  // REQUIRES: at least one use; every use and `held` have the same number of elements.
  Status Reduce(ByteSpans uses, ByteSpan held, Precision held_precision, double* square_sum);

 private:
  struct Impl;
  explicit BlockCompute(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace marea
