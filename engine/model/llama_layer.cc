#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

#include "engine/model/layer_ops.h"
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

// [sequences, heads, length, head_dim] of a projection, turned by position.
at::Tensor TurnedHeads(const at::Tensor& projected, const RopeTable& rope, int64_t head_dim) {
  return projected.is_cuda() ? SplitHeads(RotateHeads(projected, rope), head_dim)
                             : ApplyRope(SplitHeads(projected, head_dim), rope);
}

at::Tensor GatedInner(const LinearWeights& gate_of, const LinearWeights& up_of,
                      const at::Tensor& normed) {
  at::Tensor gate = gate_of(normed);
  if (normed.is_cuda()) return SiluTimes(gate, up_of(normed));
  gate = at::silu(gate);
  return gate * up_of(normed);
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
    const at::Tensor query = TurnedHeads(query_of(normed), rope, config.head_dim);
    const at::Tensor key = TurnedHeads(key_of(normed), rope, config.head_dim);
    const at::Tensor value = SplitHeads(value_of(normed), config.head_dim);
    return output_of(CausalAttention(query, key, value));
  };
  const at::Tensor middle = x + attend();
  const auto inner = [&] {
    return GatedInner(gate_of, up_of, RmsNorm(middle, norm2, config.norm_epsilon));
  };
  return AddLastProduct(middle, inner(), down_of.weight.t(),
                        down_of.bias != nullptr ? *down_of.bias : at::Tensor());
}

}  // namespace marea
