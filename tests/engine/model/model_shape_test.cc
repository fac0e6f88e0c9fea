#include "engine/model/model_shape.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace marea {
namespace {

ModelConfig Config(const std::string& text) {
  Result<ModelConfig> config = ParseModelConfig(text, "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.value();
}

const char kTinyGpt2[] =
    R"({"model_type":"gpt2","n_embd":64,"n_layer":2,"n_head":4,"n_positions":128,"vocab_size":257})";
const char kTinyLlama[] =
    R"({"model_type":"llama","hidden_size":64,"intermediate_size":176,"num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256})";

std::vector<std::string> Names(const GroupShape& group) {
  std::vector<std::string> names;
  for (const TensorShape& tensor : group.tensors) names.push_back(tensor.name);
  return names;
}

// What every shape must hold, whatever the model.
void CheckShape(const ModelShape& model) {
  uint64_t parameters = 0;
  std::set<std::string> names;
  for (const GroupShape& group : model.groups) {
    EXPECT_EQ(group.elements % kGroupAlignElements, 0u) << group.name;
    EXPECT_FALSE(group.frozen);
    uint64_t end = 0, sum = 0;
    for (const TensorShape& tensor : group.tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      EXPECT_EQ(tensor.first_element % kTensorAlignElements, 0u) << tensor.name;
      EXPECT_GE(tensor.first_element, end) << tensor.name;
      EXPECT_LT(tensor.first_element - end, kTensorAlignElements) << tensor.name;
      uint64_t elements = 1;
      for (const int64_t dim : tensor.dims) elements *= static_cast<uint64_t>(dim);
      EXPECT_EQ(tensor.elements, elements) << tensor.name;
      end = tensor.first_element + tensor.elements;
      sum += elements;
    }
    EXPECT_LE(end, group.elements);
    EXPECT_LT(group.elements - end, kGroupAlignElements);
    EXPECT_EQ(group.parameters, sum);
    parameters += sum;
  }
  EXPECT_EQ(model.parameters, parameters);
  ASSERT_EQ(model.blocks.size(), model.config.layers + 2u);
  EXPECT_EQ(model.blocks.front().kind, BlockKind::kEmbedding);
  EXPECT_EQ(model.blocks.back().kind, BlockKind::kHead);
  for (size_t i = 0; i + 1 < model.blocks.size(); ++i) {
    EXPECT_EQ(model.blocks[i].output_bytes, model.blocks[i + 1].input_bytes);
  }
}

TEST(ModelShapeTest, Gpt2SmallHasItsPublishedSize) {
  const ModelShape model =
      MakeModelShape(Config(R"({"model_type":"gpt2"})"), {1, 1024}, Precision::kBf16, 2);
  CheckShape(model);
  EXPECT_EQ(model.parameters, 124439808u);
  EXPECT_EQ(model.blocks[1].input_bytes, 1024u * 768 * 2);
}

TEST(ModelShapeTest, Llama3HasItsPublishedSize) {
  const ModelShape model =
      MakeModelShape(Config(R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,
                 "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
                 "vocab_size":128256,"max_position_embeddings":131072})"),
                     {1, 2048}, Precision::kBf16, 2);
  CheckShape(model);
  EXPECT_EQ(model.parameters, 8030261248u);
  // About 2 flops for each weight and token, and attention on top.
  double flops = 0;
  for (const BlockShape& block : model.blocks) flops += block.forward_flops;
  const double weights = 8030261248.0 - 128256.0 * 4096;
  EXPECT_NEAR(flops, 2 * weights * 2048 + 32.0 * 2 * 2048 * 2048 * 4096, 0.001 * flops);
  EXPECT_EQ(model.blocks[1].forward_flops - model.blocks[1].recomputed_flops,
            2.0 * 2048 * 14336 * 4096);
  EXPECT_EQ(model.blocks.back().forward_flops, model.blocks.back().recomputed_flops);
}

TEST(ModelShapeTest, Gpt2NamesAndOrientation) {
  const ModelShape model = MakeModelShape(Config(kTinyGpt2), {2, 16}, Precision::kFp32, 2);
  CheckShape(model);
  ASSERT_EQ(model.groups.size(), 5u);
  EXPECT_EQ(Names(model.groups[0]), std::vector<std::string>{"transformer.wte.weight"});
  EXPECT_EQ(Names(model.groups[1]), std::vector<std::string>{"transformer.wpe.weight"});
  EXPECT_EQ(model.groups[2].tensors[2].name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(model.groups[2].tensors[2].dims, (std::vector<int64_t>{64, 192}));
  EXPECT_EQ(model.groups[3].name, "layers.1");
  EXPECT_EQ(Names(model.groups[4]),
            (std::vector<std::string>{"transformer.ln_f.weight", "transformer.ln_f.bias"}));
}

TEST(ModelShapeTest, TiedWeightsAreOneGroupUsedByTwoBlocks) {
  const ModelShape gpt2 = MakeModelShape(Config(kTinyGpt2), {2, 16}, Precision::kFp32, 2);
  EXPECT_EQ(gpt2.blocks.front().groups, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(gpt2.blocks.back().groups, (std::vector<uint32_t>{4, 0}));

  const ModelShape untied = MakeModelShape(Config(kTinyLlama), {2, 16}, Precision::kFp32, 2);
  EXPECT_EQ(untied.blocks.front().groups, (std::vector<uint32_t>{0}));
  EXPECT_EQ(untied.blocks.back().groups, (std::vector<uint32_t>{3, 4}));
  EXPECT_EQ(Names(untied.groups[4]), std::vector<std::string>{"lm_head.weight"});

  ModelConfig config = Config(kTinyLlama);
  config.tied_embeddings = true;
  const ModelShape tied = MakeModelShape(config, {2, 16}, Precision::kFp32, 2);
  CheckShape(tied);
  EXPECT_EQ(tied.blocks.back().groups, (std::vector<uint32_t>{3, 0}));
  EXPECT_EQ(untied.parameters - tied.parameters, 256u * 64);
}

TEST(ModelShapeTest, LlamaBiasesWhereTheModelHasThem) {
  ModelConfig config = Config(kTinyLlama);
  config.attention_bias = true;
  config.mlp_bias = true;
  const ModelShape model = MakeModelShape(config, {2, 16}, Precision::kFp32, 2);
  CheckShape(model);
  EXPECT_EQ(model.groups[1].tensors.size(), 16u);
  EXPECT_EQ(model.groups[1].tensors[3].name, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(model.groups[1].tensors[3].dims, std::vector<int64_t>{32});
}

// No layout depends on the precision: every kind of a group's shards has the same elements.
TEST(ModelShapeTest, PrecisionChangesBytesOnly) {
  const ModelShape wide = MakeModelShape(Config(kTinyLlama), {2, 16}, Precision::kFp32, 2);
  const ModelShape narrow = MakeModelShape(Config(kTinyLlama), {2, 16}, Precision::kBf16, 2);
  for (size_t i = 0; i < wide.groups.size(); ++i) {
    EXPECT_EQ(wide.groups[i].elements, narrow.groups[i].elements);
  }
  EXPECT_EQ(wide.blocks[1].input_bytes, 2 * narrow.blocks[1].input_bytes);
}

TEST(ModelShapeTest, FullLogitsNeverExist) {
  ModelConfig config = Config(kTinyLlama);
  const BatchShape batch = {4, 2048};
  EXPECT_EQ(LossChunkRows(config, batch), 4u * 2048);  // 8 MiB of logits in all: one chunk
  config.vocabulary = 128256;
  const uint64_t rows = LossChunkRows(config, batch);
  EXPECT_EQ(rows, 64u);
  config.vocabulary = 50257;
  EXPECT_LE(LossChunkRows(config, batch) * 50257 * 4, kLossChunkBytes);
  EXPECT_EQ(LossChunkRows(config, {1, 7}), 7u);
}

TEST(BatchShapeTest, RefusesWhatTheModelCannotTake) {
  const ModelConfig config = Config(kTinyGpt2);
  EXPECT_TRUE(CheckBatchShape(config, {1, 128}).ok());
  const Status longer = CheckBatchShape(config, {1, 129});
  EXPECT_EQ(longer.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(longer.message().find("--sequence-length 129"), std::string::npos);
  EXPECT_NE(longer.message().find("128"), std::string::npos);
  EXPECT_FALSE(CheckBatchShape(config, {0, 16}).ok());
  EXPECT_FALSE(CheckBatchShape(config, {1, 0}).ok());
  EXPECT_FALSE(CheckBatchShape(config, {UINT32_MAX, 128}).ok());
}

}  // namespace
}  // namespace marea
