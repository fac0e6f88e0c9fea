// The head block: final norm, output matrix and cross-entropy, in chunks of rows (tokens).
//
// The gradient of a chunk's logits is known as soon as the logits are, so both are gone before the
// next chunk begins, and the output matrix's gradient is summed in fp32 over chunks.
//
// Thread rule: pure functions; they use torch's thread pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/block_compute.h"
#include "engine/model/model_shape.h"

namespace marea {

// Labels with their weights, checked, ready for the device. [tokens]
struct LossTargets {
  at::Tensor labels;   // int64; 0 where the weight is 0
  at::Tensor weights;  // fp32
};

// InvalidArgument where a label with weight is outside the vocabulary, or a weight is negative or
// no finite number.
Result<LossTargets> MakeLossTargets(const ModelConfig& config, const BatchShape& batch,
                                    const MicroBatch& micro_batch);

// Where the output matrix's gradient goes; `accumulator` is empty for a frozen group.
struct OutputGradient {
  const TensorShape& matrix;
  ByteSpan accumulator;
  Accumulate accumulate;
};

// sum(weight * cross_entropy) over the rows of `hidden` [tokens, hidden] (after the norm). With
// `hidden_gradient` it also writes the gradient of scale * sum there, and adds the matrix's.
double ChunkedCrossEntropy(const at::Tensor& hidden, const at::Tensor& output_matrix,
                           const LossTargets& targets, int64_t chunk_rows);
double ChunkedCrossEntropyGradients(const at::Tensor& hidden, const at::Tensor& output_matrix,
                                    const LossTargets& targets, int64_t chunk_rows, double scale,
                                    at::Tensor& hidden_gradient, const OutputGradient& output);

}  // namespace marea
