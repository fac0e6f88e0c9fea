#include "engine/model/layer_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "engine/model/gpu_ops.h"

namespace marea {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// [sequences, length, n] as [tokens, n].
at::Tensor Rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

// a^T @ b, laid out as `like`, so that it is added to its sum as it lies.
at::Tensor TransposedProduct(const at::Tensor& a, const at::Tensor& b, const at::Tensor& like) {
  return like.is_contiguous() ? at::mm(a.t(), b) : at::mm(b.t(), a).t();
}

struct LastProduct : Function<LastProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& middle,
                            const at::Tensor& inner, const at::Tensor& matrix,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({inner, matrix});
    context->saved_data["bias"] = bias.has_value();
    return at::empty({1}, middle.options()).expand(middle.sizes());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& inner = saved[0];
    const at::Tensor& matrix = saved[1];
    const at::Tensor rows = Rows(gradients[0]);
    const at::Tensor of_inner = at::mm(rows, matrix.t()).view(inner.sizes());
    at::Tensor of_matrix;
    at::Tensor of_bias;
    if (context->needs_input_grad(2)) of_matrix = TransposedProduct(Rows(inner), rows, matrix);
    const bool has_bias = context->saved_data["bias"].toBool();
    if (has_bias && context->needs_input_grad(3)) of_bias = rows.sum(0);
    return {gradients[0], of_inner, of_matrix, of_bias};
  }
};

struct Rotation : Function<Rotation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return gpu::Rotate(x, {cosine, sine}, Turn::kForth);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const RopeTable table = {saved[0], saved[1]};
    return {gpu::Rotate(gradients[0].contiguous(), table, Turn::kBack), {}, {}};
  }
};

struct GatedSilu : Function<GatedSilu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return gpu::SiluTimes(gate, up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    auto [of_gate, of_up] = gpu::SiluTimesGradients(saved[0], saved[1], gradients[0].contiguous());
    return {std::move(of_gate), std::move(of_up)};
  }
};

}  // namespace

at::Tensor AddLastProduct(const at::Tensor& middle, const at::Tensor& inner,
                          const at::Tensor& matrix, const at::Tensor& bias) {
  if (at::GradMode::is_enabled()) {
    // An undefined tensor can be no input of a node.
    const std::optional<at::Tensor> given = bias.defined() ? std::optional(bias) : std::nullopt;
    return LastProduct::apply(middle, inner, matrix, given);
  }
  const at::Tensor rows = Rows(inner);
  const at::Tensor product = bias.defined() ? at::addmm(bias, rows, matrix) : at::mm(rows, matrix);
  return middle + product.view(middle.sizes());
}

at::Tensor RotateHeads(const at::Tensor& x, const RopeTable& table) {
  return Rotation::apply(x, table.cosine, table.sine);
}

at::Tensor SiluTimes(const at::Tensor& gate, const at::Tensor& up) {
  return GatedSilu::apply(gate, up);
}

}  // namespace marea
