// Holds the workspace formulas to what torch's allocator counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/model/torch_runtime.h"
#include "io/units.h"
#include "tests/engine/model/counting_allocator.h"
#include "tests/engine/model/model_harness.h"

namespace marea {
namespace {

struct Case {
  const char* name;
  const char* config;
  BatchShape batch;
};

// Each makes another term of the formulas the largest.
const Case kCases[] = {
    {"gpt2",
     R"({"model_type":"gpt2","n_embd":256,"n_layer":1,"n_head":4,"vocab_size":1000})",
     {2, 512}},
    {"gpt2_wide_attention",
     R"({"model_type":"gpt2","n_embd":256,"n_layer":1,"n_head":8,"n_inner":128,"vocab_size":257})",
     {4, 256}},
    {"gpt2_few_tokens",
     R"({"model_type":"gpt2","n_embd":512,"n_layer":1,"n_head":8,"vocab_size":8000})",
     {1, 32}},
    {"gpt2_large_vocabulary",
     R"({"model_type":"gpt2","n_embd":128,"n_layer":1,"n_head":4,"vocab_size":50257})",
     {1, 1024}},
    {"gpt2_many_heads",
     R"({"model_type":"gpt2","n_embd":256,"n_layer":1,"n_head":32,"vocab_size":257})",
     {1, 1024}},
    {"llama",
     R"({"model_type":"llama","hidden_size":256,"intermediate_size":704,"num_hidden_layers":1,
         "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":1000})",
     {2, 512}},
    {"llama_narrow_mlp",
     R"({"model_type":"llama","hidden_size":256,"intermediate_size":128,"num_hidden_layers":1,
         "num_attention_heads":8,"num_key_value_heads":8,"vocab_size":257})",
     {4, 256}},
    {"llama_wide_heads",
     R"({"model_type":"llama","hidden_size":128,"intermediate_size":128,"num_hidden_layers":1,
         "num_attention_heads":4,"num_key_value_heads":2,"head_dim":128,"vocab_size":257})",
     {2, 512}},
    {"llama_few_tokens",
     R"({"model_type":"llama","hidden_size":512,"intermediate_size":1408,"num_hidden_layers":1,
         "num_attention_heads":8,"num_key_value_heads":2,"vocab_size":8000,
         "tie_word_embeddings":true})",
     {1, 32}},
    {"llama_larger",
     R"({"model_type":"llama","hidden_size":1024,"intermediate_size":2816,"num_hidden_layers":1,
         "num_attention_heads":16,"num_key_value_heads":4,"vocab_size":257})",
     {1, 1024}},
    {"llama_wide_mlp",
     R"({"model_type":"llama","hidden_size":128,"intermediate_size":1024,"num_hidden_layers":1,
         "num_attention_heads":2,"num_key_value_heads":1,"vocab_size":32000})",
     {2, 512}},
};

class WorkspaceTest : public testing::TestWithParam<std::tuple<Case, Precision>> {};

// Enough, and not more than half as much again beyond a constant that no model feels.
void ExpectBound(const std::string& what, uint64_t formula, uint64_t measured) {
  fmt::print("{:<60} formula {:>9} measured {:>9} ratio {:.2f}\n", what, formula, measured,
             static_cast<double>(formula) / static_cast<double>(measured + 1));
  EXPECT_GE(formula, measured) << what;
  EXPECT_LE(formula, measured + measured / 2 + 512 * kKiB) << what;
}

TEST_P(WorkspaceTest, FormulaBoundsThePeak) {
  const auto& [test_case, precision] = GetParam();
  StartTorchRuntime({.threads = 2});
  CountingAllocator& allocator = CountingAllocator::Install();
  const ModelConfig config = ParsedConfig(test_case.config);
  const BatchShape& batch = test_case.batch;

  allocator.ResetPeak();
  ModelHarness model(config, batch, precision, /*seed=*/1);
  if (config.architecture == Architecture::kLlama) {
    EXPECT_GT(model.shape().compute_fixed_bytes, 0u);
    EXPECT_LE(model.shape().compute_fixed_bytes, allocator.peak_bytes());
  }
  const HostBatch data = RandomBatch(config, batch, 2);
  model.Step({data}, 1);  // the first run of a kernel may allocate what it keeps

  const uint32_t last = static_cast<uint32_t>(model.shape().blocks.size()) - 1;
  for (uint32_t index = 0; index <= last; ++index) {
    const BlockShape& block = model.shape().blocks[index];
    const std::vector<ByteSpan> weights = model.Weights(index);
    std::vector<std::byte> input(block.input_bytes);
    std::vector<std::byte> output(model.shape().blocks[1].input_bytes);
    std::vector<std::vector<std::byte>> sums;
    for (const uint32_t group : block.groups) {
      sums.emplace_back(model.shape().groups[group].elements * sizeof(float));
    }
    const std::vector<ByteSpan> accumulators(sums.begin(), sums.end());
    double loss = 0;
    const std::string what = fmt::format(
        "{} {} {}", test_case.name, precision == Precision::kBf16 ? "bf16" : "fp32", block.name);

    allocator.ResetPeak();
    const Status forward =
        index == last ? model.compute().HeadEval(index, data.view(), weights, input, &loss)
                      : model.compute().Forward(index, data.view(), weights, input, output);
    ASSERT_TRUE(forward.ok()) << forward.message();
    ExpectBound(what + " forward", block.forward_workspace_bytes, allocator.peak_bytes());

    allocator.ResetPeak();
    const Status backward =
        index == last ? model.compute().ForwardBackward(index, data.view(), weights, input, output,
                                                        accumulators, Accumulate::kAdd, 100, &loss)
                      : model.compute().Backward(index, data.view(), weights, input, output,
                                                 accumulators, Accumulate::kAdd);
    ASSERT_TRUE(backward.ok()) << backward.message();
    ExpectBound(what + " backward", block.backward_workspace_bytes, allocator.peak_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, WorkspaceTest,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(Precision::kFp32, Precision::kBf16)),
                         [](const testing::TestParamInfo<WorkspaceTest::ParamType>& info) {
                           return fmt::format(
                               "{}_{}", std::get<0>(info.param).name,
                               std::get<1>(info.param) == Precision::kBf16 ? "bf16" : "fp32");
                         });

}  // namespace
}  // namespace marea
