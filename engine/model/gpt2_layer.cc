#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>

#include <vector>

#include "engine/model/layer_ops.h"
#include "engine/model/layers.h"
#include "io/check.h"

namespace marea {
namespace {

// In GroupShape order.
enum Gpt2Weight : size_t {
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,
  kQkvBias,
  kOutWeight,
  kOutBias,
  kNorm2Weight,
  kNorm2Bias,
  kUpWeight,
  kUpBias,
  kDownWeight,
  kDownBias,
  kGpt2WeightCount,
};

// x [sequences, length, in] times weight [in, out] plus bias.
at::Tensor Conv1d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor rows = x.reshape({-1, x.size(2)});
  return at::addmm(bias, rows, weight).view({x.size(0), x.size(1), weight.size(1)});
}

at::Tensor Attention(const ModelConfig& config, std::span<const at::Tensor> weights,
                     const at::Tensor& x) {
  const at::Tensor qkv = Conv1d(x, weights[kQkvWeight], weights[kQkvBias]);
  // split, not three narrows: the gradients of its parts are joined once.
  const std::vector<at::Tensor> parts = qkv.split(config.hidden, 2);
  const auto heads = [&](const at::Tensor& part) {
    return part.view({x.size(0), x.size(1), config.heads, config.head_dim}).transpose(1, 2);
  };
  const at::Tensor attended = CausalAttention(heads(parts[0]), heads(parts[1]), heads(parts[2]));
  return Conv1d(attended, weights[kOutWeight], weights[kOutBias]);
}

at::Tensor Inner(std::span<const at::Tensor> weights, const at::Tensor& x) {
  return at::gelu(Conv1d(x, weights[kUpWeight], weights[kUpBias]), "tanh");
}

}  // namespace

at::Tensor Gpt2Layer(const ModelConfig& config, std::span<const at::Tensor> weights,
                     const at::Tensor& x) {
  MAREA_CHECK(weights.size() == kGpt2WeightCount, "a GPT-2 layer has other tensors");
  const double epsilon = config.norm_epsilon;
  const at::Tensor middle =
      Attention(config, weights,
                LayerNorm(x, weights[kNorm1Weight], weights[kNorm1Bias], epsilon)) +
      x;
  const at::Tensor inner =
      Inner(weights, LayerNorm(middle, weights[kNorm2Weight], weights[kNorm2Bias], epsilon));
  return AddLastProduct(middle, inner, weights[kDownWeight], weights[kDownBias]);
}

}  // namespace marea
