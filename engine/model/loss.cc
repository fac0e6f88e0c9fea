#include "engine/model/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/model/tensor_views.h"
#include "io/check.h"

namespace marea {
namespace {

// log softmax of the chunk's logits, in fp32 whatever the compute type.
at::Tensor ChunkLogProbabilities(const at::Tensor& rows, const at::Tensor& output_matrix) {
  at::Tensor logits = at::mm(rows, output_matrix.t());
  logits = logits.to(at::kFloat);
  return at::log_softmax(logits, -1);
}

// Summed in double, row after row.
double LossOf(const at::Tensor& log_probabilities, const at::Tensor& labels,
              const at::Tensor& weights) {
  const at::Tensor picked = log_probabilities.gather(1, labels.unsqueeze(1)).cpu();
  const float* log_p = picked.const_data_ptr<float>();
  const at::Tensor host_weights = weights.cpu();
  const float* weight = host_weights.const_data_ptr<float>();
  double sum = 0;
  for (int64_t i = 0; i < picked.numel(); ++i) {
    if (weight[i] != 0) sum -= double{weight[i]} * double{log_p[i]};
  }
  return sum;
}

// Turns log probabilities into the gradient of scale * sum(weight * cross_entropy), in place:
// (softmax - onehot) * weight * scale.
at::Tensor LogitsGradient(at::Tensor log_probabilities, const at::Tensor& labels,
                          const at::Tensor& weights, double scale, at::ScalarType type) {
  at::Tensor& gradient = log_probabilities.exp_();
  gradient.scatter_add_(1, labels.unsqueeze(1), at::full({labels.size(0), 1}, -1.0f, at::kFloat));
  gradient.mul_((weights.to(at::kDouble) * scale).to(at::kFloat).unsqueeze(1));
  return gradient.to(type);
}

// matrix gradient += logits_gradient^T @ rows.
void AddOutputGradient(const at::Tensor& logits_gradient, const at::Tensor& rows,
                       const OutputGradient& output, Accumulate accumulate) {
  if (output.accumulator.empty()) return;
  const int64_t vocabulary = logits_gradient.size(1);
  if (rows.scalar_type() == at::kFloat) {
    float* first =
        reinterpret_cast<float*>(output.accumulator.data()) + output.matrix.first_element;
    at::Tensor sum = at::from_blob(first, output.matrix.dims, at::TensorOptions(at::kFloat));
    const at::Tensor transposed = logits_gradient.t();
    if (accumulate == Accumulate::kFirst) {
      at::mm_out(sum, transposed, rows);
    } else {
      sum.addmm_(transposed, rows);
    }
    return;
  }
  const int64_t slice_rows = static_cast<int64_t>(OutputSliceRows(rows.size(1)));
  for (int64_t first = 0; first < vocabulary; first += slice_rows) {
    const int64_t count = std::min(slice_rows, vocabulary - first);
    const at::Tensor slice = at::mm(logits_gradient.narrow(1, first, count).t(), rows);
    AddRowsGradient(output.matrix, static_cast<uint64_t>(first), slice, output.accumulator,
                    accumulate);
  }
}

}  // namespace

Result<LossTargets> MakeLossTargets(const ModelConfig& config, const BatchShape& batch,
                                    const MicroBatch& micro_batch) {
  const int64_t count = int64_t{batch.sequences} * batch.sequence_length;
  LossTargets targets{at::empty({count}, at::kLong), at::empty({count}, at::kFloat)};
  int64_t* labels = targets.labels.mutable_data_ptr<int64_t>();
  float* weights = targets.weights.mutable_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    const int32_t label = micro_batch.labels[i];
    weights[i] = micro_batch.weights[i];
    if (!(weights[i] >= 0) || std::isinf(weights[i])) {
      return Status::InvalidArgument(
          fmt::format("the loss weight at position {} of sequence {} of a micro-batch is {}, but "
                      "weights must be finite and at least 0",
                      i % batch.sequence_length, i / batch.sequence_length, weights[i]));
    }
    if (weights[i] == 0) {
      labels[i] = 0;
      continue;
    }
    if (label < 0 || static_cast<uint32_t>(label) >= config.vocabulary) {
      return Status::InvalidArgument(fmt::format(
          "label {} at position {} of sequence {} of a micro-batch is outside the "
          "model's vocabulary of {}; use data that was made for this model",
          label, i % batch.sequence_length, i / batch.sequence_length, config.vocabulary));
    }
    labels[i] = label;
  }
  return targets;
}

double ChunkedCrossEntropy(const at::Tensor& hidden, const at::Tensor& output_matrix,
                           const LossTargets& targets, int64_t chunk_rows) {
  double sum = 0;
  for (int64_t first = 0; first < hidden.size(0); first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, hidden.size(0) - first);
    sum += LossOf(ChunkLogProbabilities(hidden.narrow(0, first, count), output_matrix),
                  targets.labels.narrow(0, first, count), targets.weights.narrow(0, first, count));
  }
  return sum;
}

double ChunkedCrossEntropyGradients(const at::Tensor& hidden, const at::Tensor& output_matrix,
                                    const LossTargets& targets, int64_t chunk_rows, double scale,
                                    at::Tensor& hidden_gradient, const OutputGradient& output) {
  double sum = 0;
  for (int64_t first = 0; first < hidden.size(0); first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, hidden.size(0) - first);
    const at::Tensor rows = hidden.narrow(0, first, count);
    const at::Tensor labels = targets.labels.narrow(0, first, count);
    const at::Tensor weights = targets.weights.narrow(0, first, count);
    at::Tensor log_probabilities = ChunkLogProbabilities(rows, output_matrix);
    sum += LossOf(log_probabilities, labels, weights);
    const at::Tensor gradient =
        LogitsGradient(std::move(log_probabilities), labels, weights, scale, hidden.scalar_type());
    at::Tensor rows_gradient = hidden_gradient.narrow(0, first, count);
    at::mm_out(rows_gradient, gradient, output_matrix);
    AddOutputGradient(gradient, rows, output, first == 0 ? output.accumulate : Accumulate::kAdd);
  }
  return sum;
}

}  // namespace marea
