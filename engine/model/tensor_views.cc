#include "engine/model/tensor_views.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "engine/model/gpu_ops.h"
#include "io/check.h"

namespace marea {
namespace {

float* Floats(ByteSpan bytes) {
  return reinterpret_cast<float*>(bytes.data());
}

template <typename Source>
void AddLoop(float* target, const Source* source, int64_t count, Accumulate accumulate) {
  constexpr int64_t kGrain = 1 << 15;
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    if (accumulate == Accumulate::kFirst) {
      for (int64_t i = begin; i < end; ++i) target[i] = static_cast<float>(source[i]);
    } else {
      for (int64_t i = begin; i < end; ++i) target[i] += static_cast<float>(source[i]);
    }
  });
}

}  // namespace

at::Tensor ViewActivation(ByteSpan bytes, const ModelConfig& config, const BatchShape& batch,
                          Precision precision, const c10::Device& device) {
  const uint64_t elements = uint64_t{batch.sequences} * batch.sequence_length * config.hidden;
  MAREA_CHECK(bytes.size() == elements * WeightBytes(precision), "an activation of another size");
  return at::from_blob(bytes.data(), {batch.sequences, batch.sequence_length, config.hidden},
                       at::TensorOptions().dtype(TypeOf(precision)).device(device));
}

void AppendGroupViews(const GroupShape& group, ByteSpan bytes, Precision precision,
                      const c10::Device& device, std::vector<at::Tensor>& views) {
  MAREA_CHECK(bytes.size() == group.elements * WeightBytes(precision), "a group of another size");
  for (const TensorShape& tensor : group.tensors) {
    views.push_back(at::from_blob(bytes.data() + tensor.first_element * WeightBytes(precision),
                                  tensor.dims,
                                  at::TensorOptions().dtype(TypeOf(precision)).device(device)));
  }
}

void AddInto(float* target, const at::Tensor& source, Accumulate accumulate) {
  MAREA_CHECK(source.is_contiguous(), "gradients are added in memory order");
  if (source.is_cuda()) {
    gpu::AddInto(target, source, accumulate);
    return;
  }
  // Not ATen's add_: for mixed types it first copies the whole source to fp32.
  if (source.scalar_type() == at::kBFloat16) {
    AddLoop(target, source.const_data_ptr<c10::BFloat16>(), source.numel(), accumulate);
  } else {
    AddLoop(target, source.const_data_ptr<float>(), source.numel(), accumulate);
  }
}

void AddGradient(const GroupShape& group, size_t index, const at::Tensor& gradient,
                 ByteSpan accumulator, Accumulate accumulate) {
  MAREA_CHECK(accumulator.size() == group.elements * sizeof(float),
              "an accumulator of another size");
  const TensorShape& tensor = group.tensors[index];
  MAREA_CHECK(static_cast<uint64_t>(gradient.numel()) == tensor.elements,
              "a gradient of another shape");
  AddInto(Floats(accumulator) + tensor.first_element, gradient.contiguous(), accumulate);
}

void AddRowsGradient(const TensorShape& matrix, uint64_t first_row, const at::Tensor& gradient,
                     ByteSpan accumulator, Accumulate accumulate) {
  const uint64_t first = first_row * static_cast<uint64_t>(matrix.dims[1]);
  MAREA_CHECK(first + static_cast<uint64_t>(gradient.numel()) <= matrix.elements,
              "rows beyond the matrix");
  AddInto(Floats(accumulator) + matrix.first_element + first, gradient.contiguous(), accumulate);
}

void ZeroPadding(const GroupShape& group, ByteSpan accumulator, const c10::Device& device) {
  MAREA_CHECK(accumulator.size() == group.elements * sizeof(float),
              "an accumulator of another size");
  const auto zero = [&](uint64_t begin, uint64_t end) {
    if (begin == end) return;
    at::from_blob(Floats(accumulator) + begin, {static_cast<int64_t>(end - begin)},
                  at::TensorOptions(at::kFloat).device(device))
        .zero_();
  };
  uint64_t end = 0;
  for (const TensorShape& tensor : group.tensors) {
    zero(end, tensor.first_element);
    end = tensor.first_element + tensor.elements;
  }
  zero(end, group.elements);
}

}  // namespace marea
