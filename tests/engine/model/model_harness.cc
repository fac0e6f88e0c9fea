#include "tests/engine/model/model_harness.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "engine/model/init.h"
#include "engine/model/torch_runtime.h"
#include "io/check.h"

namespace marea {
namespace {

void CheckOk(const Status& status) {
  MAREA_CHECK(status.ok(), status.message().c_str());
}

ByteSpan Bytes(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
}

void Store(std::byte* target, const float* values, size_t count, Precision precision) {
  if (precision == Precision::kFp32) {
    std::memcpy(target, values, count * sizeof(float));
    return;
  }
  c10::BFloat16* out = reinterpret_cast<c10::BFloat16*>(target);
  for (size_t i = 0; i < count; ++i) out[i] = values[i];
}

// Group and tensor of that name.
std::pair<uint32_t, const TensorShape*> FindTensor(const ModelShape& shape,
                                                   const std::string& name) {
  for (uint32_t group = 0; group < shape.groups.size(); ++group) {
    for (const TensorShape& tensor : shape.groups[group].tensors) {
      if (tensor.name == name) return {group, &tensor};
    }
  }
  MAREA_CHECK(false, name.c_str());
}

}  // namespace

HostBatch RandomBatch(const ModelConfig& config, const BatchShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  HostBatch batch;
  for (uint64_t i = 0; i < uint64_t{shape.sequences} * shape.sequence_length; ++i) {
    batch.tokens.push_back(static_cast<int32_t>(random() % config.vocabulary));
    batch.labels.push_back(static_cast<int32_t>(random() % config.vocabulary));
    batch.weights.push_back(random() % 8 == 0 ? 0.0f : 1.0f);
  }
  return batch;
}

ModelConfig ParsedConfig(const std::string& text) {
  Result<ModelConfig> config = ParseModelConfig(text, "config.json");
  CheckOk(config.status());
  return std::move(config).value();
}

ModelHarness::ModelHarness(const ModelConfig& config, const BatchShape& batch, Precision precision,
                           uint64_t seed, const std::vector<std::string>& frozen)
    : shape_(MakeModelShape(config, batch, precision, TorchThreads())),
      batch_(batch),
      precision_(precision) {
  for (GroupShape& group : shape_.groups) {
    group.frozen = std::find(frozen.begin(), frozen.end(), group.name) != frozen.end();
    std::vector<float> values(group.elements);
    FillInitialWeights(group, seed, 0, values);
    weights_.emplace_back(group.elements * WeightBytes(precision));
    Store(weights_.back().data(), values.data(), values.size(), precision);
  }
  for (uint32_t block = 0; block < shape_.blocks.size(); ++block) {
    for (const uint32_t group : shape_.blocks[block].groups) {
      if (!shape_.groups[group].frozen) {
        uses_.push_back({block, group, std::vector<float>(shape_.groups[group].elements)});
      }
    }
  }
  auto compute = BlockCompute::Create(shape_, batch, precision, c10::Device(c10::kCPU));
  CheckOk(compute.status());
  compute_ = std::move(compute).value();
}

void ModelHarness::SetTensor(const std::string& name, const std::vector<float>& values) {
  const auto [group, tensor] = FindTensor(shape_, name);
  MAREA_CHECK(values.size() == tensor->elements, name.c_str());
  Store(weights_[group].data() + tensor->first_element * WeightBytes(precision_), values.data(),
        values.size(), precision_);
}

std::vector<float> ModelHarness::Gradient(const std::string& name) const {
  const auto [group, tensor] = FindTensor(shape_, name);
  const float* first = gradients_[group].data() + tensor->first_element;
  return {first, first + tensor->elements};
}

std::vector<ByteSpan> ModelHarness::Weights(uint32_t block) {
  std::vector<ByteSpan> spans;
  for (const uint32_t group : shape_.blocks[block].groups) spans.emplace_back(weights_[group]);
  return spans;
}

std::vector<ByteSpan> ModelHarness::Accumulators(uint32_t block) {
  std::vector<ByteSpan> spans;
  for (Use& use : uses_) {
    if (use.block == block) spans.push_back(Bytes(use.sum));
  }
  return spans;
}

void ModelHarness::ForwardWave(const std::vector<HostBatch>& batches, size_t first, size_t last) {
  const uint32_t head = static_cast<uint32_t>(shape_.blocks.size()) - 1;
  inputs_.assign(shape_.blocks.size(), {});
  for (uint32_t block = 0; block < head; ++block) {
    const std::vector<ByteSpan> weights = Weights(block);
    for (size_t i = first; i < last; ++i) {
      inputs_[block + 1].emplace_back(shape_.blocks[block].output_bytes);
      const ByteSpan input = block == 0 ? ByteSpan() : ByteSpan(inputs_[block][i - first]);
      CheckOk(
          compute_->Forward(block, batches[i].view(), weights, input, inputs_[block + 1].back()));
    }
  }
}

void ModelHarness::BackwardWave(const std::vector<HostBatch>& batches, size_t first, size_t last) {
  const uint32_t head = static_cast<uint32_t>(shape_.blocks.size()) - 1;
  std::vector<std::vector<std::byte>> gradients(last - first);
  for (uint32_t block = head + 1; block-- > 0;) {
    const std::vector<ByteSpan> weights = Weights(block);
    const std::vector<ByteSpan> accumulators = Accumulators(block);
    for (size_t i = first; i < last; ++i) {
      const Accumulate accumulate = i == 0 ? Accumulate::kFirst : Accumulate::kAdd;
      const ByteSpan input = block == 0 ? ByteSpan() : ByteSpan(inputs_[block][i - first]);
      std::vector<std::byte>& gradient = gradients[i - first];
      if (block < head) {
        CheckOk(compute_->Backward(block, batches[i].view(), weights, input, gradient, accumulators,
                                   accumulate));
        continue;
      }
      gradient.resize(shape_.blocks[head].input_bytes);
      double loss_sum = 0;
      CheckOk(compute_->ForwardBackward(head, batches[i].view(), weights, input, gradient,
                                        accumulators, accumulate, total_weight_, &loss_sum));
      loss_sum_ += loss_sum;
    }
  }
}

void ModelHarness::ReduceAll() {
  gradients_.assign(shape_.groups.size(), {});
  square_sum_ = 0;
  for (uint32_t group = 0; group < shape_.groups.size(); ++group) {
    std::vector<ByteSpan> sums;
    for (Use& use : uses_) {
      if (use.group == group) sums.push_back(Bytes(use.sum));
    }
    if (sums.empty()) continue;
    gradients_[group].resize(shape_.groups[group].elements);
    double squares = 0;
    CheckOk(compute_->Reduce(sums, Bytes(gradients_[group]), Precision::kFp32, &squares));
    square_sum_ += squares;
  }
}

double ModelHarness::Step(const std::vector<HostBatch>& batches, size_t wave) {
  total_weight_ = 0;
  loss_sum_ = 0;
  for (const HostBatch& batch : batches) {
    for (const float weight : batch.weights) total_weight_ += weight;
  }
  for (Use& use : uses_) {
    std::fill(use.sum.begin(), use.sum.end(), std::numeric_limits<float>::quiet_NaN());
  }
  for (size_t first = 0; first < batches.size(); first += wave) {
    const size_t last = std::min(batches.size(), first + wave);
    ForwardWave(batches, first, last);
    BackwardWave(batches, first, last);
  }
  ReduceAll();
  return loss_sum_;
}

double ModelHarness::Evaluate(const std::vector<HostBatch>& batches) {
  const uint32_t head = static_cast<uint32_t>(shape_.blocks.size()) - 1;
  double sum = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    ForwardWave(batches, i, i + 1);
    double loss_sum = 0;
    CheckOk(
        compute_->HeadEval(head, batches[i].view(), Weights(head), inputs_[head][0], &loss_sum));
    sum += loss_sum;
  }
  return sum;
}

}  // namespace marea
