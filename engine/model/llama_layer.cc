#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

#include "engine/model/layers.h"
#include "io/check.h"

namespace marea {
namespace {

struct LinearWeights {
  const at::Tensor& weight;
  const at::Tensor* bias;

  at::Tensor operator()(const at::Tensor& x) const {
    return at::linear(x, weight, bias != nullptr ? *bias : at::Tensor());
  }
};

// Hands out a group's tensors in order; a bias only where the model has one.
class WeightReader {
 public:
  explicit WeightReader(std::span<const at::Tensor> weights) : weights_(weights) {}

  const at::Tensor& Take() {
    MAREA_CHECK(next_ < weights_.size(), "a Llama layer has more tensors");
    return weights_[next_++];
  }
  LinearWeights Linear(bool bias) {
    const at::Tensor& weight = Take();
    return {weight, bias ? &Take() : nullptr};
  }
  bool done() const { return next_ == weights_.size(); }

 private:
  std::span<const at::Tensor> weights_;
  size_t next_ = 0;
};

at::Tensor SplitHeads(const at::Tensor& x, int64_t head_dim) {
  return x.view({x.size(0), x.size(1), -1, head_dim}).transpose(1, 2);
}

}  // namespace

at::Tensor LlamaLayer(const ModelConfig& config, const RopeTable& rope,
                      std::span<const at::Tensor> weights, const at::Tensor& x) {
  WeightReader reader(weights);
  const LinearWeights query_of = reader.Linear(config.attention_bias);
  const LinearWeights key_of = reader.Linear(config.attention_bias);
  const LinearWeights value_of = reader.Linear(config.attention_bias);
  const LinearWeights output_of = reader.Linear(config.attention_bias);
  const LinearWeights gate_of = reader.Linear(config.mlp_bias);
  const LinearWeights up_of = reader.Linear(config.mlp_bias);
  const LinearWeights down_of = reader.Linear(config.mlp_bias);
  const at::Tensor& norm1 = reader.Take();
  const at::Tensor& norm2 = reader.Take();
  MAREA_CHECK(reader.done(), "a Llama layer has fewer tensors");

  const auto attend = [&] {
    const at::Tensor normed = RmsNorm(x, norm1, config.norm_epsilon);
    const at::Tensor query = ApplyRope(SplitHeads(query_of(normed), config.head_dim), rope);
    const at::Tensor key = ApplyRope(SplitHeads(key_of(normed), config.head_dim), rope);
    const at::Tensor value = SplitHeads(value_of(normed), config.head_dim);
    return output_of(CausalAttention(query, key, value));
  };
  const at::Tensor middle = x + attend();
  const auto feed_forward = [&] {
    const at::Tensor normed = RmsNorm(middle, norm2, config.norm_epsilon);
    at::Tensor gate = gate_of(normed);
    gate = at::silu(gate);
    return down_of(gate * up_of(normed));
  };
  return middle + feed_forward();
}

}  // namespace marea
