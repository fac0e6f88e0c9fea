#include "engine/model/gpu_ops.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/accumulate_cuda.h"
#include "engine/model/embedding_cuda.h"
#include "engine/model/loss_cuda.h"
#include "engine/model/reduce_cuda.h"
#include "engine/model/rope_cuda.h"
#include "engine/model/silu_cuda.h"
#include "engine/model/tensor_views.h"
#include "engine/model/token_groups.h"
#include "engine/model/torch_cuda.h"
#include "engine/optim/adamw_cuda.h"

namespace marea::gpu {
namespace {

void Check(const Status& status) {
  TORCH_CHECK(status.ok(), status.message());
}

// Where torch works on this thread.
c10::Stream CurrentStream() {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  return guard.getStream(guard.getDevice());
}

cudaStream_t Native() {
  return static_cast<cudaStream_t>(CurrentStream().native_handle());
}

at::Tensor Empty(int64_t count, at::ScalarType type) {
  return at::empty({count}, at::TensorOptions(type).device(CurrentStream().device()));
}

// A copy in VRAM. The host's values may change as soon as this returns: torch keeps the pinned copy
// until the GPU has read it.
template <typename T>
at::Tensor Upload(std::span<const T> values, at::ScalarType type) {
  at::Tensor pinned =
      at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(type).pinned_memory(true));
  std::memcpy(pinned.mutable_data_ptr(), values.data(), values.size_bytes());
  return pinned.to(CurrentStream().device(), /*non_blocking=*/true);
}

Precision PrecisionOf(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? Precision::kBf16 : Precision::kFp32;
}

struct DeviceTargets {
  at::Tensor labels;   // int32
  at::Tensor weights;  // fp32
};

DeviceTargets Upload(const LossTargets& targets) {
  const at::Tensor labels = targets.labels.to(at::kInt);
  const auto count = static_cast<size_t>(labels.numel());
  return {Upload(std::span(labels.const_data_ptr<int32_t>(), count), at::kInt),
          Upload(std::span(targets.weights.const_data_ptr<float>(), count), at::kFloat)};
}

// One chunk's logits and where its losses go.
LogitsChunk ChunkOf(const at::Tensor& logits, const DeviceTargets& targets, int64_t first,
                    at::Tensor& row_losses) {
  return {.logits = logits.mutable_data_ptr(),
          .precision = PrecisionOf(logits),
          .rows = static_cast<uint32_t>(logits.size(0)),
          .vocabulary = static_cast<uint32_t>(logits.size(1)),
          .labels = targets.labels.const_data_ptr<int32_t>() + first,
          .weights = targets.weights.const_data_ptr<float>() + first,
          .row_losses = row_losses.mutable_data_ptr<double>() + first};
}

// matrix gradient += logits_gradient^T @ rows, summed in fp32 by the matrix product itself.
void AddOutputGradient(const at::Tensor& logits_gradient, const at::Tensor& rows,
                       const OutputGradient& output, Accumulate accumulate) {
  if (output.accumulator.empty()) return;
  float* first = reinterpret_cast<float*>(output.accumulator.data()) + output.matrix.first_element;
  at::Tensor sum =
      at::from_blob(first, output.matrix.dims, at::TensorOptions(at::kFloat).device(rows.device()));
  const at::Tensor transposed = logits_gradient.t();
  const bool begins = accumulate == Accumulate::kFirst;
  if (rows.scalar_type() == at::kFloat) {
    begins ? at::mm_out(sum, transposed, rows) : sum.addmm_(transposed, rows);
  } else if (begins) {
    at::mm_out(sum, transposed, rows, at::kFloat);
  } else {
    at::addmm_out(sum, sum, transposed, rows, at::kFloat);
  }
}

}  // namespace

void AddInto(float* target, const at::Tensor& source, Accumulate accumulate) {
  Check(AccumulateOnGpu(target, source.const_data_ptr(), PrecisionOf(source),
                        static_cast<uint64_t>(source.numel()), accumulate, Native()));
}

void EmbedForward(const ModelShape& model, const BatchShape& batch, Precision precision,
                  const int32_t* tokens, ByteSpans weights, ByteSpan output) {
  const size_t count = size_t{batch.sequences} * batch.sequence_length;
  const at::Tensor on_device = Upload(std::span(tokens, count), at::kInt);
  EmbedTables tables{.tokens = weights[0].data()};
  if (weights.size() > 1) tables.positions = weights[1].data();
  Check(EmbedForwardOnGpu(batch, model.config.hidden, precision,
                          on_device.const_data_ptr<int32_t>(), tables, output.data(), Native()));
}

void EmbedBackward(const ModelShape& model, const BatchShape& batch, Precision precision,
                   const int32_t* tokens, ByteSpan gradient, float* token_accumulator,
                   float* position_accumulator, Accumulate accumulate) {
  const BlockShape& block = model.blocks.front();
  const size_t count = size_t{batch.sequences} * batch.sequence_length;
  std::vector<uint32_t> memory(TokenGroupsWords(count));
  const int64_t padding = model.config.padding_token ? int64_t{*model.config.padding_token} : -1;
  const TokenGroups groups =
      TokenGrouper(model.config.vocabulary).Group(std::span(tokens, count), padding, memory);
  const at::Tensor on_device = Upload(std::span(std::as_const(memory)), at::kInt);
  const auto* words = static_cast<const uint32_t*>(on_device.const_data_ptr());
  EmbedSums sums;
  sums.tokens = token_accumulator;
  sums.token_elements = model.groups[block.groups[0]].elements;
  if (block.groups.size() > 1) {
    sums.positions = position_accumulator;
    sums.position_elements = model.groups[block.groups[1]].elements;
  }
  Check(EmbedBackwardOnGpu(batch, model.config.hidden, precision,
                           TokenGroupsIn(words, count, groups.count), gradient.data(), sums,
                           accumulate, Native()));
}

void CrossEntropy(const at::Tensor& hidden, const at::Tensor& output_matrix,
                  const LossTargets& targets, int64_t chunk_rows, double* loss_sum) {
  const DeviceTargets on_device = Upload(targets);
  at::Tensor row_losses = Empty(hidden.size(0), at::kDouble);
  for (int64_t first = 0; first < hidden.size(0); first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, hidden.size(0) - first);
    const at::Tensor logits = at::mm(hidden.narrow(0, first, count), output_matrix.t());
    Check(CrossEntropyOnGpu(ChunkOf(logits, on_device, first, row_losses), Native()));
  }
  Check(AddRowLossesOnGpu(row_losses.const_data_ptr<double>(),
                          static_cast<uint64_t>(hidden.size(0)), loss_sum, Accumulate::kFirst,
                          Native()));
}

void CrossEntropyGradients(const at::Tensor& hidden, const at::Tensor& output_matrix,
                           const LossTargets& targets, int64_t chunk_rows, double scale,
                           at::Tensor& hidden_gradient, const OutputGradient& output,
                           double* loss_sum) {
  const DeviceTargets on_device = Upload(targets);
  at::Tensor row_losses = Empty(hidden.size(0), at::kDouble);
  for (int64_t first = 0; first < hidden.size(0); first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, hidden.size(0) - first);
    const at::Tensor rows = hidden.narrow(0, first, count);
    const at::Tensor logits = at::mm(rows, output_matrix.t());
    Check(
        CrossEntropyGradientsOnGpu(ChunkOf(logits, on_device, first, row_losses), scale, Native()));
    at::Tensor rows_gradient = hidden_gradient.narrow(0, first, count);
    at::mm_out(rows_gradient, logits, output_matrix);
    AddOutputGradient(logits, rows, output, first == 0 ? output.accumulate : Accumulate::kAdd);
  }
  Check(AddRowLossesOnGpu(row_losses.const_data_ptr<double>(),
                          static_cast<uint64_t>(hidden.size(0)), loss_sum, Accumulate::kFirst,
                          Native()));
}

void Reduce(ByteSpans uses, ByteSpan held, Precision held_precision, double* square_sum) {
  std::vector<const float*> sums;
  for (const ByteSpan& use : uses) sums.push_back(reinterpret_cast<const float*>(use.data()));
  const uint64_t elements = uses[0].size() / sizeof(float);
  const at::Tensor block_sums =
      Empty(static_cast<int64_t>(ReduceScratchDoubles(elements)), at::kDouble);
  Check(ReduceUsesOnGpu(sums, elements, held.data(), held_precision,
                        block_sums.mutable_data_ptr<double>(), square_sum, Native()));
}

at::Tensor Rotate(const at::Tensor& x, const RopeTable& table, Turn turn) {
  TORCH_CHECK(x.is_contiguous(), "heads are turned in memory order");
  const int64_t head_dim = table.cosine.size(1);
  const RopeRows shape = {.rows = static_cast<uint32_t>(x.size(0) * x.size(1)),
                          .length = static_cast<uint32_t>(x.size(1)),
                          .heads = static_cast<uint32_t>(x.size(2) / head_dim),
                          .head_dim = static_cast<uint32_t>(head_dim)};
  at::Tensor turned = at::empty_like(x);
  Check(RotateOnGpu(shape, PrecisionOf(x), x.const_data_ptr(), table.cosine.const_data_ptr(),
                    table.sine.const_data_ptr(), turn, turned.mutable_data_ptr(), Native()));
  return turned;
}

at::Tensor SiluTimes(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK(gate.is_contiguous() && up.is_contiguous(), "gates are taken in memory order");
  at::Tensor product = at::empty_like(gate);
  Check(SiluTimesOnGpu(gate.const_data_ptr(), up.const_data_ptr(), PrecisionOf(gate),
                       static_cast<uint64_t>(gate.numel()), product.mutable_data_ptr(), Native()));
  return product;
}

std::pair<at::Tensor, at::Tensor> SiluTimesGradients(const at::Tensor& gate, const at::Tensor& up,
                                                     const at::Tensor& output_gradient) {
  TORCH_CHECK(output_gradient.is_contiguous(), "gradients are taken in memory order");
  at::Tensor of_gate = at::empty_like(gate);
  at::Tensor of_up = at::empty_like(up);
  Check(SiluTimesGradientsOnGpu(gate.const_data_ptr(), up.const_data_ptr(),
                                output_gradient.const_data_ptr(), PrecisionOf(gate),
                                static_cast<uint64_t>(gate.numel()), of_gate.mutable_data_ptr(),
                                of_up.mutable_data_ptr(), Native()));
  return {of_gate, of_up};
}

Status Update(const AdamWChunk& chunk, const double* gradient_scale,
              const AdamWConstants& constants, int gpu) {
  return AdamWOnGpu(chunk, gradient_scale, constants,
                    static_cast<cudaStream_t>(TorchComputeStream(gpu)));
}

}  // namespace marea::gpu
