// One transformer layer of each architecture, and the norms, as differentiable functions of
// tensors.
//
// `weights` are views of the layer's group in GroupShape order. Whether a graph is recorded is the
// caller's grad mode. Their order of statements decides the peak of temporaries: workspace.cc
// follows it. Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/model/attention.h"
#include "engine/model/model_config.h"

namespace marea {

// x: [sequences, length, hidden]; so is the result, which in grad mode is there to be
// differentiated and has no value (AddLastProduct, layer_ops.h).
at::Tensor Gpt2Layer(const ModelConfig& config, std::span<const at::Tensor> weights,
                     const at::Tensor& x);
at::Tensor LlamaLayer(const ModelConfig& config, const RopeTable& rope,
                      std::span<const at::Tensor> weights, const at::Tensor& x);

// The norm before the head: GPT-2's ln_f, Llama's norm.
at::Tensor FinalNorm(const ModelConfig& config, std::span<const at::Tensor> weights,
                     const at::Tensor& x);

// x / sqrt(mean(x^2) + epsilon) in fp32, rounded to x's type, times weight (on a GPU rounded once).
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);
at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon);

}  // namespace marea
