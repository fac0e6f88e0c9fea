#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rsqrt.h>

#include "engine/model/layers.h"

namespace marea {

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  // One kernel each way, which rounds once at its end.
  if (x.is_cuda()) return at::rms_norm(x, {x.size(-1)}, weight, epsilon);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.pow(2).mean(-1, /*keepdim=*/true) + epsilon);
  return weight * (wide * scale).to(x.scalar_type());
}

at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
}

at::Tensor FinalNorm(const ModelConfig& config, std::span<const at::Tensor> weights,
                     const at::Tensor& x) {
  return config.architecture == Architecture::kGpt2
             ? LayerNorm(x, weights[0], weights[1], config.norm_epsilon)
             : RmsNorm(x, weights[0], config.norm_epsilon);
}

}  // namespace marea
