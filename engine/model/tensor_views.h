// Torch tensors over bytes that the plan placed: no copies, no ownership.
//
// A view is valid as long as the bytes are. Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "engine/model/block_compute.h"
#include "engine/model/model_shape.h"

namespace marea {

constexpr at::ScalarType TypeOf(Precision precision) {
  return precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
}

// [sequences, sequence_length, hidden]. REQUIRES: `bytes` has exactly that size.
at::Tensor ViewActivation(ByteSpan bytes, const ModelConfig& config, const BatchShape& batch,
                          Precision precision, const c10::Device& device);

// Appends a view of every tensor of the group, in order. REQUIRES: `bytes` holds the whole group in
// `precision`.
void AppendGroupViews(const GroupShape& group, ByteSpan bytes, Precision precision,
                      const c10::Device& device, std::vector<at::Tensor>& views);

// Adds the gradient of tensor `index` to its place in the group's fp32 accumulator; kFirst
// overwrites.
void AddGradient(const GroupShape& group, size_t index, const at::Tensor& gradient,
                 ByteSpan accumulator, Accumulate accumulate);

// Rows [first_row, first_row + gradient rows) of a matrix, the same way.
void AddRowsGradient(const TensorShape& matrix, uint64_t first_row, const at::Tensor& gradient,
                     ByteSpan accumulator, Accumulate accumulate);

// Zeroes what belongs to no tensor: the gaps between tensors and the end.
void ZeroPadding(const GroupShape& group, ByteSpan accumulator, const c10::Device& device);

// target[i] += source[i], or target[i] = source[i]. REQUIRES: `source` contiguous, bf16 or fp32.
void AddInto(float* target, const at::Tensor& source, Accumulate accumulate);

}  // namespace marea
