#include "engine/model/block_compute.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/model/embedding.h"
#include "engine/model/torch_runtime.h"
#include "tests/engine/model/model_harness.h"

namespace marea {
namespace {

constexpr BatchShape kBatch = {2, 24};

const char kGpt2[] =
    R"({"model_type":"gpt2","n_embd":64,"n_layer":2,"n_head":4,"n_positions":128,"vocab_size":257})";
const char kLlama[] =
    R"({"model_type":"llama","hidden_size":64,"intermediate_size":176,"num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256})";
const char kLlamaTied[] =
    R"({"model_type":"llama","hidden_size":64,"intermediate_size":176,"num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256,
        "tie_word_embeddings":true})";

std::vector<HostBatch> Batches(const ModelConfig& config, size_t count) {
  std::vector<HostBatch> batches;
  for (size_t i = 0; i < count; ++i) batches.push_back(RandomBatch(config, kBatch, 100 + i));
  return batches;
}

// Bit for bit, so that NaN equals itself and -0 does not equal 0.
bool SameBits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

class ModelsTest : public testing::TestWithParam<std::tuple<const char*, Precision>> {
 protected:
  void SetUp() override { StartTorchRuntime({.threads = 2}); }
  ModelConfig config() const { return ParsedConfig(std::get<0>(GetParam())); }
  Precision precision() const { return std::get<1>(GetParam()); }
};

TEST_P(ModelsTest, WaveSizeChangesNoBit) {
  const std::vector<HostBatch> batches = Batches(config(), 4);
  ModelHarness model(config(), kBatch, precision(), 5);
  const double loss = model.Step(batches, 4);
  const std::vector<std::vector<float>> gradients = model.gradients();
  const double squares = model.square_sum();
  EXPECT_GT(squares, 0);
  for (const size_t wave : {1, 2, 3}) {
    EXPECT_EQ(model.Step(batches, wave), loss) << wave;
    EXPECT_EQ(model.square_sum(), squares) << wave;
    EXPECT_TRUE(SameBits(model.gradients(), gradients)) << wave;
  }
}

TEST_P(ModelsTest, EvaluationIsTheSameLoss) {
  const std::vector<HostBatch> batches = Batches(config(), 3);
  ModelHarness model(config(), kBatch, precision(), 5);
  EXPECT_EQ(model.Evaluate(batches), model.Step(batches, 3));
}

TEST_P(ModelsTest, PaddingOfGradientsIsZeroAndNothingIsNan) {
  ModelHarness model(config(), kBatch, precision(), 5);
  model.Step(Batches(config(), 2), 2);
  for (size_t g = 0; g < model.gradients().size(); ++g) {
    std::vector<float> left = model.gradients()[g];
    for (const TensorShape& tensor : model.shape().groups[g].tensors) {
      for (uint64_t i = 0; i < tensor.elements; ++i) {
        ASSERT_TRUE(std::isfinite(left[tensor.first_element + i])) << tensor.name;
        left[tensor.first_element + i] = 0;
      }
    }
    for (const float value : left) ASSERT_EQ(value, 0.0f) << model.shape().groups[g].name;
  }
}

TEST_P(ModelsTest, FrozenGroupsGetNoGradientAndChangeNoOther) {
  const std::vector<HostBatch> batches = Batches(config(), 2);
  ModelHarness whole(config(), kBatch, precision(), 5);
  const double loss = whole.Step(batches, 2);
  const std::string embedding = whole.shape().groups[0].name;
  for (const std::vector<std::string>& frozen : {std::vector<std::string>{"layers.0"},
                                                 {embedding, "norm"},
                                                 {"layers.0", "layers.1", "norm"}}) {
    ModelHarness model(config(), kBatch, precision(), 5, frozen);
    EXPECT_EQ(model.Step(batches, 2), loss);
    for (size_t g = 0; g < model.gradients().size(); ++g) {
      if (model.shape().groups[g].frozen) {
        EXPECT_TRUE(model.gradients()[g].empty());
      } else {
        EXPECT_TRUE(SameBits({model.gradients()[g]}, {whole.gradients()[g]}))
            << model.shape().groups[g].name;
      }
    }
  }
}

// A micro-batch without weight adds nothing; a step without any has a zero gradient, not 0/0.
TEST_P(ModelsTest, MaskedMicroBatches) {
  std::vector<HostBatch> batches = Batches(config(), 3);
  batches[1].weights.assign(batches[1].weights.size(), 0.0f);
  batches[1].labels.assign(batches[1].labels.size(), -100);  // not looked at
  ModelHarness model(config(), kBatch, precision(), 5);
  const double loss = model.Step(batches, 3);
  const std::vector<std::vector<float>> gradients = model.gradients();
  EXPECT_EQ(model.Step({batches[0], batches[2]}, 2), loss);
  // Equal as numbers: adding a zero may turn -0 into 0.
  EXPECT_EQ(model.gradients(), gradients);

  EXPECT_EQ(model.Step({batches[1]}, 1), 0.0);
  EXPECT_EQ(model.square_sum(), 0.0);
}

// The difference quotient along the gradient: a check that needs no other implementation.
TEST_P(ModelsTest, GradientPredictsTheLoss) {
  if (precision() == Precision::kBf16) GTEST_SKIP() << "too coarse for difference quotients";
  const std::vector<HostBatch> batches = Batches(config(), 2);
  ModelHarness model(config(), kBatch, precision(), 5);
  model.Step(batches, 2);
  const std::vector<std::vector<float>> gradients = model.gradients();
  const double squares = model.square_sum();
  const auto loss_at = [&](double step) {
    for (uint32_t block = 0; block < model.shape().blocks.size(); ++block) {
      const std::vector<ByteSpan> weights = model.Weights(block);
      for (size_t i = 0; i < weights.size(); ++i) {
        const uint32_t group = model.shape().blocks[block].groups[i];
        if (block > 0 && group == 0) continue;  // tied weights move once
        float* values = reinterpret_cast<float*>(weights[i].data());
        for (size_t k = 0; k < gradients[group].size(); ++k) {
          values[k] += static_cast<float>(step * gradients[group][k]);
        }
      }
    }
    return model.Evaluate(batches) / model.total_weight();
  };
  const double step = 0.01 / std::sqrt(squares);
  const double above = loss_at(step);
  const double below = loss_at(-2 * step);
  EXPECT_NEAR((above - below) / (2 * step * squares), 1.0, 2e-3);
}

TEST_P(ModelsTest, TokenOutsideTheVocabularyIsNamed) {
  ModelHarness model(config(), kBatch, precision(), 5);
  HostBatch batch = RandomBatch(config(), kBatch, 1);
  const uint32_t head = static_cast<uint32_t>(model.shape().blocks.size()) - 1;
  std::vector<std::byte> activation(model.shape().blocks[0].output_bytes);
  std::vector<std::byte> gradient(activation.size());
  for (const int32_t bad : {-1, static_cast<int32_t>(config().vocabulary)}) {
    HostBatch broken = batch;
    broken.tokens[kBatch.sequence_length + 3] = bad;
    const Status forward =
        model.compute().Forward(0, broken.view(), model.Weights(0), {}, activation);
    EXPECT_EQ(forward.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(forward.message().find("position 3 of sequence 1"), std::string::npos)
        << forward.message();

    broken = batch;
    broken.labels[2] = bad;
    broken.weights[2] = 1;
    double loss = 0;
    EXPECT_EQ(model.compute()
                  .HeadEval(head, broken.view(), model.Weights(head), activation, &loss)
                  .code(),
              ErrorCode::kInvalidArgument);
  }
  for (const float bad :
       {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    HostBatch broken = batch;
    broken.weights[0] = bad;
    double loss = 0;
    EXPECT_EQ(model.compute()
                  .HeadEval(head, broken.view(), model.Weights(head), activation, &loss)
                  .code(),
              ErrorCode::kInvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelsTest,
                         testing::Combine(testing::Values(kGpt2, kLlama, kLlamaTied),
                                          testing::Values(Precision::kFp32, Precision::kBf16)));

// Several chunks of rows give the loss and gradients of one.
TEST(LossTest, ChunksDoNotChangeTheResult) {
  StartTorchRuntime({.threads = 2});
  const ModelConfig config = ParsedConfig(
      R"({"model_type":"gpt2","n_embd":32,"n_layer":1,"n_head":2,"n_positions":512,
          "vocab_size":70001})");
  const BatchShape long_batch = {1, 320};
  ASSERT_LT(LossChunkRows(config, long_batch), 320u / 2);
  HostBatch batch = RandomBatch(config, long_batch, 1);
  ModelHarness whole(config, long_batch, Precision::kFp32, 5);
  const double loss = whole.Step({batch}, 1);
  // The same tokens with loss on one part at a time: the sums must agree.
  double loss_sum = 0;
  std::vector<float> gradient_sum(whole.Gradient("transformer.ln_f.weight").size());
  for (size_t part = 0; part < 5; ++part) {
    HostBatch masked = batch;
    double weight = 0;
    for (size_t i = 0; i < masked.weights.size(); ++i) {
      if (i / 64 != part) masked.weights[i] = 0;
      weight += masked.weights[i];
    }
    loss_sum += whole.Step({masked}, 1);
    const std::vector<float> gradient = whole.Gradient("transformer.ln_f.weight");
    for (size_t k = 0; k < gradient.size(); ++k) {
      gradient_sum[k] += static_cast<float>(gradient[k] * weight);
    }
  }
  EXPECT_NEAR(loss_sum / loss, 1.0, 1e-9);
  whole.Step({batch}, 1);
  const std::vector<float> gradient = whole.Gradient("transformer.ln_f.weight");
  for (size_t k = 0; k < gradient.size(); ++k) {
    EXPECT_NEAR(gradient_sum[k] / whole.total_weight(), gradient[k], 1e-6);
  }
}

// ATen's own embedding gradient in bf16 loses small addends; ours is the fp32 sum, whatever the
// threads.
TEST(EmbeddingTest, GradientIsAnExactSumForAnyThreadCount) {
  const ModelConfig config = ParsedConfig(kGpt2);
  const BatchShape batch = {4, 128};
  const ModelShape model = MakeModelShape(config, batch, Precision::kBf16, 1);
  const std::vector<int32_t> tokens(4 * 128, 9);
  std::vector<c10::BFloat16> gradient(4 * 128 * 64);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = 1.0f + 0.0078125f * (i % 3);
  std::vector<std::vector<float>> sums;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    std::vector<float> rows(model.groups[0].elements, NAN);
    std::vector<float> positions(model.groups[1].elements, NAN);
    EmbedBackward(model, batch, Precision::kBf16, tokens.data(),
                  std::as_writable_bytes(std::span(gradient)), rows.data(), positions.data(),
                  Accumulate::kFirst);
    for (int64_t k = 0; k < 64; ++k) {
      double expected = 0;
      for (size_t t = 0; t < tokens.size(); ++t) {
        expected += static_cast<float>(gradient[t * 64 + static_cast<size_t>(k)]);
      }
      EXPECT_EQ(rows[9 * 64 + static_cast<size_t>(k)], expected);  // all sums are exact in fp32
    }
    EXPECT_EQ(rows[8 * 64], 0.0f);
    rows.insert(rows.end(), positions.begin(), positions.end());
    sums.push_back(std::move(rows));
  }
  at::set_num_threads(2);
  EXPECT_TRUE(SameBits({sums[0]}, {sums[1]}));
  EXPECT_TRUE(SameBits({sums[0]}, {sums[2]}));
}

TEST(ReduceTest, AddsUsesRoundsAndSumsSquaresOfWhatIsHeld) {
  ModelHarness model(ParsedConfig(kGpt2), kBatch, Precision::kFp32, 1);
  constexpr size_t kElements = 3 * kReduceBlockElements + 77;
  std::vector<float> first(kElements), second(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    first[i] = std::sin(static_cast<float>(i));
    second[i] = 1e-3f * std::cos(static_cast<float>(3 * i));
  }
  const std::vector<ByteSpan> uses = {std::as_writable_bytes(std::span(first)),
                                      std::as_writable_bytes(std::span(second))};
  std::vector<c10::BFloat16> held(kElements);
  double squares = 0;
  ASSERT_TRUE(model.compute()
                  .Reduce(uses, std::as_writable_bytes(std::span(held)), Precision::kBf16, &squares)
                  .ok());
  double expected = 0;
  for (size_t i = 0; i < kElements; ++i) {
    const c10::BFloat16 rounded = first[i] + second[i];
    ASSERT_EQ(held[i].x, rounded.x) << i;
    expected += double{rounded} * double{rounded};
  }
  EXPECT_NEAR(squares / expected, 1.0, 1e-14);

  std::vector<float> wide(kElements);
  double first_squares = 0;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    ASSERT_TRUE(
        model.compute()
            .Reduce(uses, std::as_writable_bytes(std::span(wide)), Precision::kFp32, &squares)
            .ok());
    if (threads == 1) first_squares = squares;
    EXPECT_EQ(squares, first_squares);
    EXPECT_EQ(wide[5], first[5] + second[5]);
  }
  at::set_num_threads(2);
}

TEST(TorchRuntimeTest, ThreadCountIsWhatWasAskedFor) {
  StartTorchRuntime({.threads = 2});
  EXPECT_EQ(TorchThreads(), 2u);
  EXPECT_STREQ(TorchVersion(), "2.11.0");
}

}  // namespace
}  // namespace marea
