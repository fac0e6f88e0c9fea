#include "engine/model/init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "engine/model/model_config.h"

namespace marea {
namespace {

ModelShape Shape(const std::string& config) {
  Result<ModelConfig> parsed = ParseModelConfig(config, "config.json");
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return MakeModelShape(parsed.value(), {1, 8}, Precision::kFp32, 1);
}

const char kGpt2[] =
    R"({"model_type":"gpt2","n_embd":192,"n_layer":2,"n_head":4,"n_positions":64,"vocab_size":257})";

std::vector<float> Fill(const GroupShape& group, uint64_t seed, uint32_t threads = 1) {
  std::vector<float> values(group.elements);
  FillInitialWeights(group, seed, 0, values, threads);
  return values;
}

TEST(InverseNormalTest, MatchesTabulatedQuantiles) {
  EXPECT_EQ(InverseNormal(0.5), 0.0);
  EXPECT_NEAR(InverseNormal(0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(InverseNormal(0.9986501019683699), 3.0, 1e-12);
  EXPECT_NEAR(InverseNormal(1e-10), -6.361340902404056, 1e-13);
}

// The inverse of erfc at every kind of argument: centre, middle and tail, and their borders.
TEST(InverseNormalTest, InvertsTheDistribution) {
  for (double p = 1e-9; p < 1; p = p < 0.01 ? p * 1.7 : p + 0.0013) {
    const double x = InverseNormal(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)) / p, 1.0, 1e-13) << p;
  }
}

TEST(InitTest, NormalTensorsHaveTheirMeanDeviationAndTails) {
  const ModelShape model = Shape(kGpt2);
  for (const GroupShape& group : model.groups) {
    const std::vector<float> values = Fill(group, 7);
    for (const TensorShape& tensor : group.tensors) {
      if (tensor.init != InitKind::kNormal) continue;
      double sum = 0, squares = 0, fourth = 0;
      for (uint64_t i = 0; i < tensor.elements; ++i) {
        const double x = values[tensor.first_element + i] / tensor.init_std;
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
      }
      const double n = static_cast<double>(tensor.elements);
      const double sigma = 1 / std::sqrt(n);
      EXPECT_NEAR(sum / n, 0, 5 * sigma) << tensor.name;
      EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0) * sigma) << tensor.name;
      EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96.0) * sigma) << tensor.name;
    }
  }
}

TEST(InitTest, ResidualProjectionsOfGpt2AreSmaller) {
  const ModelShape model = Shape(kGpt2);
  int scaled = 0;
  for (const GroupShape& group : model.groups) {
    for (const TensorShape& tensor : group.tensors) {
      if (tensor.init != InitKind::kNormal) continue;
      const bool residual = tensor.name.ends_with("c_proj.weight");
      EXPECT_DOUBLE_EQ(tensor.init_std, residual ? 0.02 / 2 : 0.02) << tensor.name;
      scaled += residual ? 1 : 0;
    }
  }
  EXPECT_EQ(scaled, 4);
}

TEST(InitTest, NormsAreOnesBiasesAndPaddingZero) {
  const ModelShape model = Shape(kGpt2);
  for (const GroupShape& group : model.groups) {
    std::vector<float> values = Fill(group, 7);
    for (const TensorShape& tensor : group.tensors) {
      const bool norm = tensor.name.find("ln_") != std::string::npos;
      for (uint64_t i = 0; i < tensor.elements; ++i) {
        float& value = values[tensor.first_element + i];
        if (tensor.name.ends_with(".bias")) {
          EXPECT_EQ(value, 0.0f) << tensor.name;
        } else if (norm) {
          EXPECT_EQ(value, 1.0f) << tensor.name;
        }
        value = 0;
      }
    }
    // What is left after the tensors are blanked is padding.
    for (const float value : values) ASSERT_EQ(value, 0.0f) << group.name;
  }
}

TEST(InitTest, PaddingTokenStartsAsZeros) {
  const ModelShape model = Shape(
      R"({"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":1,
          "num_attention_heads":4,"vocab_size":16,"pad_token_id":3})");
  const GroupShape& group = model.groups[0];
  std::vector<float> middle(70);  // begins and ends inside rows 2 and 4
  FillInitialWeights(group, 1, 3 * 64 - 3, middle);
  for (size_t i = 0; i < middle.size(); ++i) {
    EXPECT_EQ(middle[i] == 0.0f, i >= 3 && i < 67) << i;
  }
}

TEST(InitTest, AnyRangeAndThreadCountGivesTheSameBits) {
  const ModelShape model = Shape(kGpt2);
  const GroupShape& group = model.groups[2];  // a layer
  const std::vector<float> whole = Fill(group, 3);
  EXPECT_EQ(std::memcmp(whole.data(), Fill(group, 3, 5).data(), whole.size() * sizeof(float)), 0);
  for (const uint64_t step : {uint64_t{1021}, uint64_t{4096}, uint64_t{131071}}) {
    std::vector<float> pieces(group.elements);
    // Back to front, so that order is shown not to matter.
    for (uint64_t first = (group.elements - 1) / step * step;; first -= step) {
      const uint64_t count = std::min(step, group.elements - first);
      FillInitialWeights(group, 3, first, std::span(pieces).subspan(first, count));
      if (first == 0) break;
    }
    EXPECT_EQ(std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(float)), 0) << step;
  }
}

TEST(InitTest, SeedAndNameDecideNothingElse) {
  const ModelShape model = Shape(kGpt2);
  const std::vector<float> first = Fill(model.groups[2], 3);
  EXPECT_NE(first, Fill(model.groups[2], 4));
  EXPECT_NE(first, Fill(model.groups[3], 3));  // the next layer: other names, the same shapes
  // A model with more layers begins with the same layers, but for the scale of its residual paths.
  const ModelShape deeper = Shape(
      R"({"model_type":"gpt2","n_embd":192,"n_layer":5,"n_head":4,"n_positions":32,"vocab_size":99})");
  EXPECT_EQ(InitialNormal(3, model.groups[2].tensors[2].name, 5),
            InitialNormal(3, deeper.groups[2].tensors[2].name, 5));
  EXPECT_EQ(first[model.groups[2].tensors[2].first_element + 5],
            static_cast<float>(0.02 * InitialNormal(3, "transformer.h.0.attn.c_attn.weight", 5)));
}

// These very numbers are part of what a seed means: a change of them changes every run.
TEST(InitTest, ValuesStayWhatTheyAre) {
  EXPECT_EQ(InitialNormal(0, "transformer.wte.weight", 0), -1.4806858264139697);
  EXPECT_EQ(InitialNormal(42, "model.layers.0.mlp.up_proj.weight", 123456789012),
            2.4676094288543879);
}

}  // namespace
}  // namespace marea
