#include "engine/model/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/model/workspace.h"
#include "io/check.h"
#include "io/units.h"

namespace marea {
namespace {

// Lays the tensors of one group one after another.
class GroupBuilder {
 public:
  GroupBuilder(std::string name, const ModelConfig& config) : config_(config) {
    group_.name = std::move(name);
    group_.elements = 0;
    group_.parameters = 0;
  }

  TensorShape& Add(std::string name, std::vector<int64_t> dims, InitKind init) {
    TensorShape tensor;
    tensor.name = std::move(name);
    tensor.elements = 1;
    for (const int64_t dim : dims) tensor.elements *= static_cast<uint64_t>(dim);
    tensor.dims = std::move(dims);
    tensor.first_element = RoundUp(group_.elements, kTensorAlignElements);
    tensor.init = init;
    tensor.init_std = config_.init_std;
    group_.elements = tensor.first_element + tensor.elements;
    group_.parameters += tensor.elements;
    group_.tensors.push_back(std::move(tensor));
    return group_.tensors.back();
  }
  TensorShape& Matrix(std::string name, uint64_t rows, uint64_t columns) {
    return Add(std::move(name), {static_cast<int64_t>(rows), static_cast<int64_t>(columns)},
               InitKind::kNormal);
  }
  void Vector(std::string name, uint64_t size, InitKind init) {
    Add(std::move(name), {static_cast<int64_t>(size)}, init);
  }
  // A torch Linear: weight [out, in] and, if it has one, bias [out].
  void Linear(const std::string& name, uint64_t in, uint64_t out, bool bias) {
    Matrix(name + ".weight", out, in);
    if (bias) Vector(name + ".bias", out, InitKind::kZeros);
  }
  // GPT-2's Conv1D keeps its weight the other way round, [in, out], in memory and in files.
  TensorShape& Conv1d(const std::string& name, uint64_t in, uint64_t out) {
    const size_t weight = group_.tensors.size();
    Matrix(name + ".weight", in, out);
    Vector(name + ".bias", out, InitKind::kZeros);
    return group_.tensors[weight];
  }
  void LayerNorm(const std::string& name) {
    Vector(name + ".weight", config_.hidden, InitKind::kOnes);
    Vector(name + ".bias", config_.hidden, InitKind::kZeros);
  }

  GroupShape Finish() {
    group_.elements = RoundUp(group_.elements, kGroupAlignElements);
    return std::move(group_);
  }

 private:
  const ModelConfig& config_;
  GroupShape group_;
};

GroupShape Gpt2Layer(const ModelConfig& config, uint32_t layer) {
  GroupBuilder group(fmt::format("layers.{}", layer), config);
  const std::string prefix = fmt::format("transformer.h.{}.", layer);
  // Two residual paths a layer add up over the depth; GPT-2 starts them smaller accordingly.
  const double residual_std = config.init_std / std::sqrt(2.0 * config.layers);
  group.LayerNorm(prefix + "ln_1");
  group.Conv1d(prefix + "attn.c_attn", config.hidden, uint64_t{3} * config.hidden);
  group.Conv1d(prefix + "attn.c_proj", config.hidden, config.hidden).init_std = residual_std;
  group.LayerNorm(prefix + "ln_2");
  group.Conv1d(prefix + "mlp.c_fc", config.hidden, config.intermediate);
  group.Conv1d(prefix + "mlp.c_proj", config.intermediate, config.hidden).init_std = residual_std;
  return group.Finish();
}

GroupShape LlamaLayer(const ModelConfig& config, uint32_t layer) {
  GroupBuilder group(fmt::format("layers.{}", layer), config);
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const uint64_t query = uint64_t{config.heads} * config.head_dim;
  const uint64_t key = uint64_t{config.kv_heads} * config.head_dim;
  group.Linear(prefix + "self_attn.q_proj", config.hidden, query, config.attention_bias);
  group.Linear(prefix + "self_attn.k_proj", config.hidden, key, config.attention_bias);
  group.Linear(prefix + "self_attn.v_proj", config.hidden, key, config.attention_bias);
  group.Linear(prefix + "self_attn.o_proj", query, config.hidden, config.attention_bias);
  group.Linear(prefix + "mlp.gate_proj", config.hidden, config.intermediate, config.mlp_bias);
  group.Linear(prefix + "mlp.up_proj", config.hidden, config.intermediate, config.mlp_bias);
  group.Linear(prefix + "mlp.down_proj", config.intermediate, config.hidden, config.mlp_bias);
  group.Vector(prefix + "input_layernorm.weight", config.hidden, InitKind::kOnes);
  group.Vector(prefix + "post_attention_layernorm.weight", config.hidden, InitKind::kOnes);
  return group.Finish();
}

uint32_t AddGroup(ModelShape& model, GroupShape group) {
  model.parameters += group.parameters;
  model.groups.push_back(std::move(group));
  return static_cast<uint32_t>(model.groups.size() - 1);
}

// The embedding's groups; the first holds the token embedding, which a tied head uses too.
std::vector<uint32_t> AddEmbedding(ModelShape& model) {
  const ModelConfig& config = model.config;
  const bool gpt2 = config.architecture == Architecture::kGpt2;
  GroupBuilder tokens(gpt2 ? "wte" : "embed_tokens", config);
  TensorShape& table = tokens.Matrix(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight",
                                     config.vocabulary, config.hidden);
  if (config.padding_token) table.zero_row = *config.padding_token;
  std::vector<uint32_t> groups = {AddGroup(model, tokens.Finish())};
  if (gpt2) {
    GroupBuilder positions("wpe", config);
    positions.Matrix("transformer.wpe.weight", config.max_positions, config.hidden);
    groups.push_back(AddGroup(model, positions.Finish()));
  }
  return groups;
}

// The head's groups: the final norm, then the output matrix [vocabulary, hidden].
std::vector<uint32_t> AddHead(ModelShape& model, uint32_t token_embedding) {
  const ModelConfig& config = model.config;
  GroupBuilder norm("norm", config);
  if (config.architecture == Architecture::kGpt2) {
    norm.LayerNorm("transformer.ln_f");
  } else {
    norm.Vector("model.norm.weight", config.hidden, InitKind::kOnes);
  }
  const uint32_t norm_group = AddGroup(model, norm.Finish());
  if (config.tied_embeddings) return {norm_group, token_embedding};
  GroupBuilder output("lm_head", config);
  output.Matrix("lm_head.weight", config.vocabulary, config.hidden);
  return {norm_group, AddGroup(model, output.Finish())};
}

void AddBlock(ModelShape& model, BlockKind kind, std::string name, uint32_t layer,
              std::vector<uint32_t> groups, const BatchShape& batch, Precision precision,
              const ComputeTarget& target) {
  const uint64_t activation_bytes = uint64_t{batch.sequences} * batch.sequence_length *
                                    model.config.hidden * WeightBytes(precision);
  BlockShape block;
  block.name = std::move(name);
  block.kind = kind;
  block.layer = layer;
  block.groups = std::move(groups);
  block.input_bytes = kind == BlockKind::kEmbedding ? 0 : activation_bytes;
  block.output_bytes = kind == BlockKind::kHead ? 0 : activation_bytes;
  uint64_t parameters = 0;
  for (const uint32_t group : block.groups) parameters += model.groups[group].parameters;
  const Workspace workspace =
      BlockWorkspace(model.config, batch, precision, target, kind, parameters);
  block.forward_workspace_bytes = workspace.forward_bytes;
  block.backward_workspace_bytes = workspace.backward_bytes;
  block.forward_flops = BlockForwardFlops(model.config, batch, kind);
  block.recomputed_flops = BlockRecomputedFlops(model.config, batch, kind);
  model.blocks.push_back(std::move(block));
}

}  // namespace

bool CpuMultipliesBf16() {
#if defined(__x86_64__)
  // What torch asks for before it hands bf16 products to oneDNN.
  return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0;
#else
  return true;
#endif
}

uint64_t LossChunkRows(const ModelConfig& config, const BatchShape& batch,
                       const ComputeTarget& target) {
  const uint64_t tokens = uint64_t{batch.sequences} * batch.sequence_length;
  constexpr uint64_t kRowsMin =
      64;  // fewer rows would read the whole output matrix for little work
  const uint64_t rows = (target.gpu ? kGpuLossChunkBytes : kLossChunkBytes) /
                        (uint64_t{config.vocabulary} * sizeof(float));
  return std::min(tokens, std::max(kRowsMin, rows / kRowsMin * kRowsMin));
}

Status CheckBatchShape(const ModelConfig& config, const BatchShape& batch) {
  if (batch.sequences == 0 || batch.sequence_length == 0) {
    return Status::InvalidArgument(
        fmt::format("a micro-batch of {} sequences of {} tokens holds nothing to train on; set "
                    "--micro-batch and --sequence-length to at least 1",
                    batch.sequences, batch.sequence_length));
  }
  if (batch.sequence_length > config.max_positions) {
    return Status::InvalidArgument(
        fmt::format("--sequence-length {} is longer than the model's {} positions; give at most {}",
                    batch.sequence_length, config.max_positions, config.max_positions));
  }
  // Byte counts of the widest activation must stay far below 2^64.
  constexpr uint64_t kTokensMax = uint64_t{1} << 31;
  if (uint64_t{batch.sequences} * batch.sequence_length > kTokensMax) {
    return Status::InvalidArgument(
        fmt::format("a micro-batch of {} sequences of {} tokens is larger than {} tokens; use a "
                    "smaller --micro-batch",
                    batch.sequences, batch.sequence_length, kTokensMax));
  }
  return Status::Ok();
}

ModelShape MakeModelShape(const ModelConfig& config, const BatchShape& batch, Precision precision,
                          const ComputeTarget& target) {
  MAREA_CHECK(CheckBatchShape(config, batch).ok(), "the batch does not fit the model");
  ModelShape model;
  model.config = config;
  model.target = target;
  const std::vector<uint32_t> embedding = AddEmbedding(model);
  const uint32_t first_layer = static_cast<uint32_t>(model.groups.size());
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    AddGroup(model, config.architecture == Architecture::kGpt2 ? Gpt2Layer(config, layer)
                                                               : LlamaLayer(config, layer));
  }
  const std::vector<uint32_t> head = AddHead(model, embedding.front());

  AddBlock(model, BlockKind::kEmbedding, "embedding", 0, embedding, batch, precision, target);
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    AddBlock(model, BlockKind::kLayer, fmt::format("layer {}", layer), layer, {first_layer + layer},
             batch, precision, target);
  }
  AddBlock(model, BlockKind::kHead, "head", 0, head, batch, precision, target);
  model.compute_fixed_bytes = ComputeFixedBytes(config, batch, precision, target);
  return model;
}

}  // namespace marea
