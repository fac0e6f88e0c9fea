// Sizes and paths that broke engines of this kind, each with the kind behind it.
#include <chrono>

#include "tests/engine/train/tiny_run.h"

namespace marea {
namespace {

constexpr uint64_t kOddGroupParameters = 513000;

std::string Gpt2Of(uint64_t vocabulary, uint64_t hidden, uint64_t heads, uint64_t inner) {
  return R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":)" +
         std::to_string(vocabulary) + R"(,"n_embd":)" + std::to_string(hidden) +
         R"(,"n_layer":2,"n_head":)" + std::to_string(heads) + R"(,"n_positions":48,"n_inner":)" +
         std::to_string(inner) + R"(,"tie_word_embeddings":false})";
}

std::string LlamaOf(uint64_t vocabulary, uint64_t hidden, uint64_t inner, uint64_t head_dim) {
  return R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":)" +
         std::to_string(vocabulary) + R"(,"hidden_size":)" + std::to_string(hidden) +
         R"(,"intermediate_size":)" + std::to_string(inner) +
         R"(,"num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,"head_dim":)" +
         std::to_string(head_dim) +
         R"(,"max_position_embeddings":48,"rms_norm_eps":1e-5,"tie_word_embeddings":false})";
}

void Rest(PlanSpec& spec, Tier tier, uint64_t chunk_elements) {
  for (auto& homes : spec.placement.homes) homes.fill(tier);
  spec.placement.partial = tier;
  spec.chunk_elements = chunk_elements;
  SetRings(spec, tier == Tier::kVram ? 1 : 2);
}

// Three steps with everything on NVMe give the bits of three steps with everything in VRAM.
void ExpectOffloadChangesNothing(TinyOptions tiny, const std::vector<uint64_t>& chunk_elements) {
  tiny.steps = 3;
  tiny.accumulation_steps = 2;
  tiny.respec = [](PlanSpec& spec) { Rest(spec, Tier::kVram, kGroupAlignElements); };
  const Result<TinyResult> reference = RunTiny(tiny);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  for (const uint64_t elements : chunk_elements) {
    tiny.respec = [elements](PlanSpec& spec) { Rest(spec, Tier::kNvme, elements); };
    const Result<TinyResult> offloaded = RunTiny(tiny);
    ASSERT_TRUE(offloaded.ok()) << elements << ": " << offloaded.status().message();
    const auto& lanes = offloaded.value().summary.lanes;
    EXPECT_GT(lanes[static_cast<int>(Lane::kNvmeRead)].bytes, 0u) << elements;
    EXPECT_EQ(offloaded.value().losses, reference.value().losses) << elements;
    EXPECT_EQ(offloaded.value().norms, reference.value().norms) << elements;
    EXPECT_TRUE(offloaded.value().weights == reference.value().weights) << elements;
  }
}

// The token embedding, untied, is a group of 1710 x 300 elements: no page or sector divides it. The
// chunk is the group, rounded up to the layout's unit; then smaller; then far larger.
TEST(FieldCases, GroupOfExactly513000Elements) {
  TinyOptions tiny{.model = Gpt2Of(1710, 300, 4, 24)};
  tiny.resetup = [](RunSetup& setup) {
    EXPECT_EQ(setup.model->groups[0].parameters, kOddGroupParameters);
  };
  const uint64_t exact = RoundUp(kOddGroupParameters, kGroupAlignElements);
  ExpectOffloadChangesNothing(tiny, {exact, 4 * kGroupAlignElements, 8 * exact});
}

TEST(FieldCases, NothingDividesByASector) {
  for (const bool bf16 : {true, false}) {
    SCOPED_TRACE(bf16 ? "bf16" : "fp32");
    ExpectOffloadChangesNothing({.model = Gpt2Of(257, 63, 3, 101), .bf16 = bf16},
                                {kGroupAlignElements, 3 * kGroupAlignElements});
    ExpectOffloadChangesNothing({.model = LlamaOf(257, 51, 77, 14), .bf16 = bf16},
                                {kGroupAlignElements, 64 * kGroupAlignElements});
  }
}

TEST(FieldCases, GroupsSmallerThanAPage) {
  ExpectOffloadChangesNothing({.model = LlamaOf(256, 6, 5, 2)},
                              {kGroupAlignElements, 1024 * kGroupAlignElements});
}

// What PrepareRun says of an offload section, and that it says so at once.
std::string RefusalOf(const std::string& section, const std::string& nvme_path) {
  const TinyFolder folder;
  RunOptions options = TinyRunOptions(folder, {});
  options.nvme.clear();
  WriteFile(folder / "file", "x");
  std::string value = nvme_path;
  if (nvme_path == "MISSING") value = ",\"nvme_path\":\"" + (folder / "no/such") + "\"";
  if (nvme_path == "FILE") value = ",\"nvme_path\":\"" + (folder / "file") + "\"";
  WriteFile(folder / "ds.json", R"({"train_micro_batch_size_per_gpu":2,"bf16":{"enabled":true},)"
                                R"("zero_optimization":{"stage":3,")" +
                                    section + R"(":{"device":"nvme")" + value + "}}}");
  const auto begin = std::chrono::steady_clock::now();
  const Result<std::unique_ptr<RunSetup>> setup = PrepareRun(options);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1)) << nvme_path;
  if (setup.ok()) return "accepted";
  EXPECT_EQ(setup.status().code(), ErrorCode::kInvalidArgument) << setup.status().message();
  EXPECT_FALSE(std::filesystem::exists(options.output_path));
  return setup.status().message();
}

TEST(FieldCases, NvmeWithoutAUsablePathIsRefusedByKeyAndReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "absent"},
      {R"(,"nvme_path":null)", "null"},
      {R"(,"nvme_path":"")", "empty"},
      {"MISSING", "does not exist"},
      {"FILE", "is not a folder"},
      {R"(,"nvme_path":"/proc")", "takes no file"},  // refuses files from root too
      {R"(,"nvme_path":"auto")", "\"auto\""},
      {R"(,"nvme_path":"/dev/shm")", "tmpfs"},
  };
  for (const char* section : {"offload_param", "offload_optimizer"}) {
    const std::string key = std::string("zero_optimization.") + section + ".nvme_path";
    for (const auto& [value, reason] : cases) {
      const std::string message = RefusalOf(section, value);
      EXPECT_NE(message.find(key), std::string::npos) << message;
      EXPECT_NE(message.find(reason), std::string::npos) << reason << ": " << message;
    }
  }
}

}  // namespace
}  // namespace marea
