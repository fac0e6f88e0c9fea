#include "engine/model/block_compute.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>
#include <vector>

#include "engine/model/attention.h"
#include "engine/model/embedding.h"
#include "engine/model/gpu_ops.h"
#include "engine/model/layers.h"
#include "engine/model/loss.h"
#include "engine/model/reduce.h"
#include "engine/model/tensor_views.h"
#include "engine/model/torch_guard.h"
#include "io/check.h"

namespace marea {
namespace {

// Are weights leaves whose gradient autograd computes?
enum class Gradients : uint8_t { kNone, kWanted };

}  // namespace

struct BlockCompute::Impl {
  ModelShape model;
  BatchShape batch;
  Precision precision;
  c10::Device device;
  RopeTable rope;  // Llama

  const BlockShape& Block(uint32_t index) const {
    MAREA_CHECK(index < model.blocks.size(), "no such block");
    return model.blocks[index];
  }

  at::Tensor View(ByteSpan bytes) const {
    return ViewActivation(bytes, model.config, batch, precision, device);
  }

  // What blocks compute in: the stored type, or fp32 where the CPU has no product of bf16.
  Precision ComputePrecision() const {
    return model.target.widens_bf16 ? Precision::kFp32 : precision;
  }
  // The tensor itself, or a wider copy.
  at::Tensor Widened(const at::Tensor& stored) const {
    return stored.to(TypeOf(ComputePrecision()));
  }

  std::vector<at::Tensor> Views(const BlockShape& block, ByteSpans weights,
                                Gradients gradients) const {
    MAREA_CHECK(weights.size() == block.groups.size(), "one span of weights for each group");
    std::vector<at::Tensor> views;
    for (size_t i = 0; i < weights.size(); ++i) {
      const GroupShape& group = model.groups[block.groups[i]];
      const size_t first = views.size();
      AppendGroupViews(group, weights[i], precision, device, views);
      for (size_t k = first; k < views.size(); ++k) {
        views[k] = Widened(views[k]);
        if (gradients == Gradients::kWanted && !group.frozen) views[k].set_requires_grad(true);
      }
    }
    return views;
  }

  // The accumulator of each group of the block, empty where frozen.
  std::vector<ByteSpan> Accumulators(const BlockShape& block, ByteSpans trainable) const {
    std::vector<ByteSpan> all;
    size_t next = 0;
    for (const uint32_t group : block.groups) {
      if (model.groups[group].frozen) {
        all.emplace_back();
        continue;
      }
      MAREA_CHECK(next < trainable.size(), "one accumulator for each trainable group");
      all.push_back(trainable[next++]);
      MAREA_CHECK(all.back().size() == model.groups[group].elements * sizeof(float),
                  "an accumulator of another size");
    }
    MAREA_CHECK(next == trainable.size(), "one accumulator for each trainable group");
    return all;
  }

  at::Tensor RunLayer(std::span<const at::Tensor> weights, const at::Tensor& x) const {
    return model.config.architecture == Architecture::kGpt2
               ? Gpt2Layer(model.config, weights, x)
               : LlamaLayer(model.config, rope, weights, x);
  }

  void LayerForward(const BlockShape& block, ByteSpans weights, ByteSpan input,
                    ByteSpan output) const {
    const at::AutoGradMode no_graph(false);
    const std::vector<at::Tensor> views = Views(block, weights, Gradients::kNone);
    View(output).copy_(RunLayer(views, Widened(View(input))));
  }

  void LayerBackward(const BlockShape& block, ByteSpans weights, ByteSpan input, ByteSpan gradient,
                     ByteSpans trainable, Accumulate accumulate) const {
    const ByteSpan accumulator = Accumulators(block, trainable)[0];
    const GroupShape& group = model.groups[block.groups[0]];
    at::Tensor output_gradient = Widened(View(gradient));
    std::vector<at::Tensor> gradients;
    {
      const at::AutoGradMode graph(true);
      at::Tensor x = Widened(View(input)).set_requires_grad(true);
      const std::vector<at::Tensor> views = Views(block, weights, Gradients::kWanted);
      std::vector<at::Tensor> leaves = {x};
      if (!group.frozen) leaves.insert(leaves.end(), views.begin(), views.end());
      gradients = torch::autograd::grad({RunLayer(views, x)}, leaves, {output_gradient});
    }
    const at::AutoGradMode no_graph(false);
    View(gradient).copy_(gradients[0]);
    if (group.frozen) return;
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      AddGradient(group, i, gradients[i + 1], accumulator, accumulate);
      gradients[i + 1].reset();
    }
    if (accumulate == Accumulate::kFirst) ZeroPadding(group, accumulator, device);
  }

  Status EmbeddingBackward(const BlockShape& block, const MicroBatch& micro_batch,
                           ByteSpan gradient, ByteSpans trainable, Accumulate accumulate) const {
    MAREA_RETURN_IF_ERROR(CheckTokens(model.config, batch, micro_batch.tokens));
    const std::vector<ByteSpan> sums = Accumulators(block, trainable);
    const auto floats = [&](size_t i) {
      return i < sums.size() ? reinterpret_cast<float*>(sums[i].data()) : nullptr;
    };
    (device.is_cuda() ? gpu::EmbedBackward : marea::EmbedBackward)(
        model, batch, precision, micro_batch.tokens, gradient, floats(0), floats(1), accumulate);
    return Status::Ok();
  }

  // Rows of a micro-batch, [tokens, hidden].
  at::Tensor Rows(const at::Tensor& x) const { return x.view({-1, model.config.hidden}); }

  Status Eval(const BlockShape& block, const MicroBatch& micro_batch, ByteSpans weights,
              ByteSpan input, double* loss_sum) const {
    MAREA_ASSIGN_OR_RETURN(const LossTargets targets,
                           MakeLossTargets(model.config, batch, micro_batch));
    const at::AutoGradMode no_graph(false);
    const std::vector<at::Tensor> views = Views(block, weights, Gradients::kNone);
    const at::Tensor hidden = FinalNorm(model.config, views, Widened(View(input)));
    if (device.is_cuda()) {
      gpu::CrossEntropy(Rows(hidden), views.back(), targets, ChunkRows(), loss_sum);
    } else {
      *loss_sum = ChunkedCrossEntropy(Rows(hidden), views.back(), targets, ChunkRows());
    }
    return Status::Ok();
  }

  int64_t ChunkRows() const {
    return static_cast<int64_t>(LossChunkRows(model.config, batch, model.target));
  }

  Status HeadBackward(const BlockShape& block, const MicroBatch& micro_batch, ByteSpans weights,
                      ByteSpan input, ByteSpan input_gradient, ByteSpans trainable,
                      Accumulate accumulate, double scale, double* loss_sum) const {
    MAREA_ASSIGN_OR_RETURN(const LossTargets targets,
                           MakeLossTargets(model.config, batch, micro_batch));
    const std::vector<ByteSpan> sums = Accumulators(block, trainable);
    const GroupShape& norm = model.groups[block.groups[0]];
    const GroupShape& output = model.groups[block.groups[1]];

    at::Tensor x = Widened(View(input)).set_requires_grad(true);
    const std::vector<at::Tensor> views = Views(block, weights, Gradients::kWanted);
    at::Tensor hidden;
    {
      const at::AutoGradMode graph(true);
      hidden = FinalNorm(model.config, views, x);
    }
    at::Tensor hidden_gradient;
    {
      const at::AutoGradMode no_graph(false);
      hidden_gradient = at::empty_like(hidden);
      at::Tensor gradient_rows = Rows(hidden_gradient);
      const OutputGradient matrix{output.tensors[0], sums[1], accumulate};
      const at::Tensor rows = Rows(hidden.detach());
      const at::Tensor weight = views.back().detach();
      if (device.is_cuda()) {
        gpu::CrossEntropyGradients(rows, weight, targets, ChunkRows(), scale, gradient_rows, matrix,
                                   loss_sum);
      } else {
        *loss_sum = ChunkedCrossEntropyGradients(rows, weight, targets, ChunkRows(), scale,
                                                 gradient_rows, matrix);
      }
    }
    std::vector<at::Tensor> leaves = {x};
    if (!norm.frozen) leaves.insert(leaves.end(), views.begin(), views.end() - 1);
    const std::vector<at::Tensor> gradients =
        torch::autograd::grad({hidden}, leaves, {hidden_gradient});
    const at::AutoGradMode no_graph(false);
    View(input_gradient).copy_(gradients[0]);
    for (size_t i = 0; i + 1 < gradients.size(); ++i) {
      AddGradient(norm, i, gradients[i + 1], sums[0], accumulate);
    }
    if (accumulate == Accumulate::kFirst) {
      if (!norm.frozen) ZeroPadding(norm, sums[0], device);
      if (!output.frozen) ZeroPadding(output, sums[1], device);
    }
    return Status::Ok();
  }
};

BlockCompute::BlockCompute(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockCompute::~BlockCompute() = default;

Result<std::unique_ptr<BlockCompute>> BlockCompute::Create(const ModelShape& model,
                                                           const BatchShape& batch,
                                                           Precision precision,
                                                           c10::Device device) {
  MAREA_CHECK(device.is_cuda() == model.target.gpu, "the model's shape is for another device");
  MAREA_RETURN_IF_ERROR(CheckBatchShape(model.config, batch));
  auto impl = std::make_unique<Impl>(Impl{model, batch, precision, device, {}});
  if (model.config.architecture == Architecture::kLlama) {
    MAREA_RETURN_IF_ERROR(Guarded("rotary position tables", [&] {
      const at::AutoGradMode no_graph(false);
      impl->rope = MakeRopeTable(model.config, batch.sequence_length,
                                 TypeOf(impl->ComputePrecision()), device);
      return Status::Ok();
    }));
  }
  return std::unique_ptr<BlockCompute>(new BlockCompute(std::move(impl)));
}

Status BlockCompute::Forward(uint32_t block_index, const MicroBatch& micro_batch, ByteSpans weights,
                             ByteSpan input, ByteSpan output) {
  const BlockShape& block = impl_->Block(block_index);
  MAREA_CHECK(block.kind != BlockKind::kHead, "the head has no output activation");
  return Guarded(block.name + " forward", [&] {
    if (block.kind == BlockKind::kLayer) {
      impl_->LayerForward(block, weights, input, output);
      return Status::Ok();
    }
    MAREA_RETURN_IF_ERROR(CheckTokens(impl_->model.config, impl_->batch, micro_batch.tokens));
    (impl_->device.is_cuda() ? gpu::EmbedForward : EmbedForward)(
        impl_->model, impl_->batch, impl_->precision, micro_batch.tokens, weights, output);
    return Status::Ok();
  });
}

Status BlockCompute::Backward(uint32_t block_index, const MicroBatch& micro_batch,
                              ByteSpans weights, ByteSpan input, ByteSpan gradient,
                              ByteSpans accumulators, Accumulate accumulate) {
  const BlockShape& block = impl_->Block(block_index);
  MAREA_CHECK(block.kind != BlockKind::kHead, "the head's backward is ForwardBackward");
  return Guarded(block.name + " backward", [&] {
    if (block.kind == BlockKind::kEmbedding) {
      return impl_->EmbeddingBackward(block, micro_batch, gradient, accumulators, accumulate);
    }
    impl_->LayerBackward(block, weights, input, gradient, accumulators, accumulate);
    return Status::Ok();
  });
}

Status BlockCompute::ForwardBackward(uint32_t block_index, const MicroBatch& micro_batch,
                                     ByteSpans weights, ByteSpan input, ByteSpan input_gradient,
                                     ByteSpans accumulators, Accumulate accumulate,
                                     double total_weight, double* loss_sum) {
  const BlockShape& block = impl_->Block(block_index);
  MAREA_CHECK(block.kind == BlockKind::kHead, "only the head runs forward and backward at once");
  MAREA_CHECK(total_weight >= 0, "the weights of a step cannot sum to less than 0");
  // A step without any weight has no loss; its gradient is zero, not 0/0.
  const double scale = total_weight > 0 ? 1.0 / total_weight : 0.0;
  return Guarded(block.name + " forward and backward", [&] {
    return impl_->HeadBackward(block, micro_batch, weights, input, input_gradient, accumulators,
                               accumulate, scale, loss_sum);
  });
}

Status BlockCompute::HeadEval(uint32_t block_index, const MicroBatch& micro_batch,
                              ByteSpans weights, ByteSpan input, double* loss_sum) {
  const BlockShape& block = impl_->Block(block_index);
  MAREA_CHECK(block.kind == BlockKind::kHead, "only the head has a loss");
  return Guarded(block.name + " evaluation",
                 [&] { return impl_->Eval(block, micro_batch, weights, input, loss_sum); });
}

Status BlockCompute::Reduce(ByteSpans uses, ByteSpan held, Precision held_precision,
                            double* square_sum) {
  return Guarded("gradient reduction", [&] {
    if (impl_->device.is_cuda()) {
      gpu::Reduce(uses, held, held_precision, square_sum);
    } else {
      *square_sum = ReduceUses(uses, held, held_precision);
    }
    return Status::Ok();
  });
}

}  // namespace marea
