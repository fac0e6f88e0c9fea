#include "engine/config/deepspeed_config.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/config/known_keys.h"
#include "tests/engine/config/config_helpers.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

TEST(Precision, Bf16OrFp32) {
  EXPECT_EQ(Accept("").precision, Precision::kFp32);
  EXPECT_TRUE(Mentions(Accept("").notices, "fp32"));
  const TrainingConfig bf16 = Accept("\"bf16\": {\"enabled\": true}");
  EXPECT_EQ(bf16.precision, Precision::kBf16);
  EXPECT_EQ(bf16.gradient_type, Precision::kBf16);
  EXPECT_FALSE(Mentions(bf16.notices, "in fp32"));
  EXPECT_EQ(Accept("\"bfloat16\": {\"enabled\": true}").precision, Precision::kBf16);
  EXPECT_EQ(
      Accept("\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"}").precision,
      Precision::kFp32);
  const TrainingConfig wide =
      Accept("\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"fp32\"}");
  EXPECT_EQ(wide.gradient_type, Precision::kFp32);
}

TEST(Precision, Refusals) {
  EXPECT_HAS(Refuse("\"fp16\": {\"enabled\": true}"), "\"bf16\": {\"enabled\": true}");
  EXPECT_HAS(Refuse("\"fp16\": {\"enabled\": true}"), "fp16.enabled");
  EXPECT_HAS(Refuse("\"bf16\": {\"enabled\": \"yes\"}"), "bf16.enabled is \"yes\"");
  EXPECT_HAS(Refuse("\"bf16\": true"), "bf16 is true");
  EXPECT_HAS(Refuse("\"data_types\": {\"grad_accum_dtype\": \"bf16\"}"), "grad_accum_dtype");
  EXPECT_HAS(Refuse("\"data_types\": {\"grad_accum_dtype\": \"fp16\"}"), "grad_accum_dtype");
  EXPECT_HAS(Refuse("\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}"),
             "bf16_optimizer_states");
  EXPECT_EQ(Accept("\"fp16\": {\"enabled\": false, \"loss_scale\": 0}").precision,
            Precision::kFp32);
}

// train, micro, accumulation ("" absent), world -> the filled triple
struct BatchCase {
  std::string train, micro, accumulation;
  uint32_t world;
  uint64_t want_train, want_micro, want_accumulation;
};

std::string BatchText(const BatchCase& batch) {
  std::string text;
  const auto add = [&](const char* key, const std::string& value) {
    if (value.empty()) return;
    text += (text.empty() ? "" : ", ") + std::string("\"") + key + "\": " + value;
  };
  add("train_batch_size", batch.train);
  add("train_micro_batch_size_per_gpu", batch.micro);
  add("gradient_accumulation_steps", batch.accumulation);
  return "{" + text + "}";
}

TEST(Batch, TripleIsFilledAsDeepSpeedDoes) {
  const BatchCase cases[] = {
      {"32", "4", "8", 1, 32, 4, 8},
      {"32", "4", "", 1, 32, 4, 8},
      {"32", "", "8", 1, 32, 4, 8},
      {"", "4", "8", 1, 32, 4, 8},
      {"32", "", "", 1, 32, 32, 1},
      {"", "4", "", 1, 4, 4, 1},
      {"32", "4", "", 4, 32, 4, 2},
      {"32", "", "", 4, 32, 8, 1},
      {"", "4", "8", 2, 64, 4, 8},
      {"3.2e1", "4", "null", 1, 32, 4, 8},
      {"\"auto\"", "\"auto\"", "\"auto\"", 1, 8, 8, 1},
      {"\"auto\"", "4", "2", 1, 8, 4, 2},
      {"32", "\"auto\"", "4", 1, 32, 8, 4},
      {"", "\"auto\"", "4", 2, 64, 8, 4},
  };
  for (const BatchCase& batch : cases) {
    ConfigOverrides overrides;
    overrides.world_size = batch.world;
    const Result<TrainingConfig> config = Parse(BatchText(batch), overrides);
    ASSERT_TRUE(config.ok()) << BatchText(batch) << config.status().message();
    EXPECT_EQ(config.value().batch.train_batch_size, batch.want_train) << BatchText(batch);
    EXPECT_EQ(config.value().batch.micro_batch, batch.want_micro) << BatchText(batch);
    EXPECT_EQ(config.value().batch.accumulation_steps, batch.want_accumulation) << BatchText(batch);
  }
}

TEST(Batch, ContradictionsNameTheNumbers) {
  const BatchCase cases[] = {
      {"32", "4", "4", 1, 0, 0, 0}, {"33", "4", "", 1, 0, 0, 0},
      {"32", "4", "8", 2, 0, 0, 0}, {"2", "", "", 4, 0, 0, 0},
      {"32", "", "5", 1, 0, 0, 0},  {"1", "4294967295", "4294967295", 4294967295, 0, 0, 0},
  };
  for (const BatchCase& batch : cases) {
    ConfigOverrides overrides;
    overrides.world_size = batch.world;
    const Result<TrainingConfig> config = Parse(BatchText(batch), overrides);
    ASSERT_FALSE(config.ok()) << BatchText(batch);
    const std::string& message = config.status().message();
    for (const std::string& number : {batch.train, batch.micro, batch.accumulation}) {
      EXPECT_HAS(message, number);
    }
    EXPECT_HAS(message, "contradict");
  }
  for (const char* value : {"0", "-4", "1.5", "\"8\"", "true", "4294967296", "[1]"}) {
    EXPECT_FALSE(Parse(BatchText({value, "1", "", 1, 0, 0, 0})).ok()) << value;
  }
  EXPECT_HAS(Parse("{}").status().message(), "train_micro_batch_size_per_gpu");
  EXPECT_HAS(Parse(R"({"gradient_accumulation_steps": 4})").status().message(), "--micro-batch");
}

TEST(Batch, FlagOverridesAndKeepsTheGlobalBatch) {
  ConfigOverrides overrides;
  overrides.micro_batch = 2;
  const TrainingConfig config = Parse(BatchText({"32", "4", "8", 1, 0, 0, 0}), overrides).value();
  EXPECT_EQ(config.batch.train_batch_size, 32u);
  EXPECT_EQ(config.batch.micro_batch, 2u);
  EXPECT_EQ(config.batch.accumulation_steps, 16u);
  EXPECT_TRUE(Mentions(config.notices, "--micro-batch 2"));
  EXPECT_EQ(Parse("{}", overrides).value().batch.train_batch_size, 2u);
  EXPECT_EQ(DefaultTrainingConfig({}).value().batch.train_batch_size, 8u);
}

TEST(ZeroSection, OffloadIsRead) {
  const TrainingConfig config =
      Accept(Zero(R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/mnt/a",
              "buffer_count": 5, "buffer_size": 3e9, "max_in_cpu": 1e9, "pin_memory": true},
              "offload_optimizer": {"device": "cpu", "ratio": 0.5, "pipeline_read": true,
              "pipeline_write": true, "fast_init": false, "buffer_count": 4})"));
  EXPECT_EQ(config.zero.stage, 3u);
  EXPECT_EQ(config.zero.offload_param.device, OffloadDevice::kNvme);
  EXPECT_EQ(config.zero.offload_param.nvme_path, "/mnt/a");
  EXPECT_EQ(config.zero.offload_param.buffer_size, 3'000'000'000u);
  EXPECT_EQ(config.zero.offload_param.pin_memory, true);
  EXPECT_EQ(config.zero.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(config.zero.offload_optimizer.ratio, 0.5);
  EXPECT_TRUE(Mentions(config.notices, "zero_optimization.offload_param.buffer_size"));
}

TEST(ZeroSection, EveryPublishedKeyIsKnown) {
  // The keys of a common stage 3 file, "auto" included.
  const TrainingConfig config = Accept(Zero(
      R"("stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
         "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
         "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
         "stage3_max_reuse_distance": 1e12, "stage3_gather_16bit_weights_on_model_save": true,
         "reduce_scatter": true, "allgather_partitions": true, "allgather_bucket_size": 5e8,
         "mics_shard_size": -1, "round_robin_gradients": true)"));
  EXPECT_TRUE(config.warnings.empty());
  for (const KeySpec& spec : KeysOf(kZero)) {
    if (spec.no_effect.empty()) continue;
    const std::string key(spec.name);
    const std::string listed = "zero_optimization." + key;
    const TrainingConfig one = Accept(Zero("\"" + key + "\": \"auto\""));
    EXPECT_TRUE(Mentions(one.notices, listed)) << key;
  }
}

TEST(ZeroSection, KeysWithoutEffectAreListedOnceByReasonAndCheckedForSense) {
  const TrainingConfig config =
      Accept(Zero("\"reduce_bucket_size\": 5e8, \"allgather_bucket_size\": 1"));
  int lines = 0;
  for (const std::string& notice : config.notices) {
    lines += notice.find("reduce_bucket_size") != std::string::npos;
    if (notice.find("reduce_bucket_size") == std::string::npos) continue;
    EXPECT_HAS(notice, "allgather_bucket_size");
    EXPECT_HAS(notice, "step plan");
  }
  EXPECT_EQ(lines, 1);
  for (const char* value : {"-1", "-5e8", "0.5", "\"big\"", "true", "1e30"}) {
    EXPECT_HAS(Refuse(Zero("\"reduce_bucket_size\": " + std::string(value))),
               "zero_optimization.reduce_bucket_size");
  }
  EXPECT_HAS(Refuse(Zero("\"overlap_comm\": \"yes\"")), "true or false");
  EXPECT_HAS(
      Refuse(Zero("\"stage\": 3, \"offload_param\": {\"device\": \"cpu\", \"buffer_count\": -2}")),
      "zero_optimization.offload_param.buffer_count is -2");
}

TEST(ZeroSection, NvmeNeedsAPath) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "is absent"},
      {", \"nvme_path\": null", "is null"},
      {", \"nvme_path\": \"\"", "is empty"},
      {", \"nvme_path\": \"auto\"", "is \"auto\""},
  };
  for (const char* section : {"offload_param", "offload_optimizer"}) {
    for (const auto& [path, why] : cases) {
      const std::string text = Zero("\"stage\": 3, \"" + std::string(section) +
                                    "\": {\"device\": \"nvme\"" + path + "}");
      const std::string message = Refuse(text);
      EXPECT_HAS(message, "zero_optimization." + std::string(section) + ".nvme_path " + why);
      ConfigOverrides overrides;
      overrides.nvme_paths_given = true;
      Accept(text, overrides);
    }
  }
  EXPECT_HAS(
      Refuse(Zero("\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": 7}")),
      "nvme_path is 7");
}

TEST(ZeroSection, StageDecidesWhatIsOffloaded) {
  const TrainingConfig two = Accept(Zero(
      "\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}, \"offload_optimizer\": {\"device\": "
      "\"cpu\"}"));
  EXPECT_FALSE(two.zero.offload_param.present);
  EXPECT_TRUE(two.zero.offload_optimizer.present);
  EXPECT_TRUE(Mentions(two.notices, "offload_param"));
  const TrainingConfig none = Accept(Zero("\"offload_optimizer\": {\"device\": \"cpu\"}"));
  EXPECT_FALSE(none.zero.offload_optimizer.present);
  EXPECT_HAS(Refuse(Zero("\"stage\": 4")), "zero_optimization.stage is 4");
  EXPECT_HAS(
      Refuse(Zero("\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}")),
      "stage 3");
  EXPECT_HAS(
      Refuse(Zero("\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 1.5}")),
      "from 0 to 1");
  EXPECT_HAS(Refuse(Zero("\"stage\": 3, \"offload_param\": {\"device\": \"disk\"}")), "\"nvme\"");
}

TEST(ZeroSection, DeprecatedNames) {
  const TrainingConfig config =
      Accept(Zero("\"stage\": 3, \"cpu_offload\": true, \"cpu_offload_param\": true"));
  EXPECT_EQ(config.zero.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(config.zero.offload_param.device, OffloadDevice::kCpu);
  EXPECT_TRUE(Mentions(config.warnings, "cpu_offload"));
  EXPECT_HAS(Refuse(Zero("\"stage\": 2, \"cpu_offload\": true, \"offload_optimizer\": {}")),
             "offload_optimizer");
  EXPECT_EQ(Accept("\"zero_optimization\": true").zero.stage, 1u);
  EXPECT_TRUE(Mentions(Accept("\"zero_optimization\": true").warnings, "deprecated"));
  EXPECT_HAS(Refuse("\"zero_optimization\": 3"), "zero_optimization is 3");
}

TEST(UnknownKeys, ErrorsBelowZeroNameTheNearestKeyOrTheRightPlace) {
  EXPECT_HAS(Refuse(Zero("\"stage3_prefetch_buket_size\": 1")),
             "did you mean \"stage3_prefetch_bucket_size\"?");
  EXPECT_HAS(Refuse(Zero("\"offload_params\": {}")), "did you mean \"offload_param\"?");
  EXPECT_HAS(Refuse(Zero("\"aio\": {\"block_size\": 262144}")), "it belongs at the top level");
  EXPECT_HAS(Refuse(Zero("\"aio\": {\"block_size\": 262144}")), "\"aio\" in zero_optimization");
  EXPECT_HAS(Refuse(Zero("\"nvme_path\": \"/x\"")),
             "it belongs in zero_optimization.offload_param");
  EXPECT_HAS(Refuse(Zero("\"qqqqqqqqqqqq\": 1")), "remove it");
  EXPECT_HAS(Refuse(Zero("\"stage\": 3, \"offload_param\": {\"pipeline_read\": true}")),
             "it belongs in zero_optimization.offload_optimizer");
  EXPECT_HAS(Refuse(Zero("\"stage\": 3, \"offload_optimizer\": {\"devise\": \"cpu\"}")),
             "did you mean \"device\"?");
}

TEST(UnknownKeys, TopLevelIsAWarning) {
  const TrainingConfig config = Accept("\"gradient_cliping\": 1.0, \"stage\": 3, \"zzz\": 1");
  EXPECT_EQ(config.gradient_clipping, 0.0);
  EXPECT_TRUE(Mentions(config.warnings, "did you mean \"gradient_clipping\"?"));
  EXPECT_TRUE(Mentions(config.warnings, "it belongs in zero_optimization"));
  EXPECT_EQ(config.warnings.size(), 3u);
  const TrainingConfig known = Accept("\"steps_per_print\": 10, \"wall_clock_breakdown\": false");
  EXPECT_TRUE(known.warnings.empty());
  EXPECT_TRUE(Mentions(known.notices, "steps_per_print"));
  EXPECT_HAS(Refuse("\"steps_per_print\": -10"), "steps_per_print");
}

TEST(Unsupported, SectionsThatTrainSomethingElse) {
  EXPECT_HAS(Refuse("\"amp\": {\"enabled\": true}"), "amp is enabled");
  EXPECT_HAS(Refuse("\"compression_training\": {\"weight_quantization\": {\"shared_parameters\": "
                    "{\"enabled\": true}}}"),
             "compression_training");
  EXPECT_HAS(Refuse("\"sparse_attention\": {\"mode\": \"fixed\"}"), "sparse_attention");
  EXPECT_HAS(Refuse("\"sequence_parallel_size\": 2"), "sequence_parallel_size");
  EXPECT_HAS(Refuse(Zero("\"zenflow\": {}")), "ZenFlow");
  Accept("\"amp\": {\"enabled\": false}, \"elasticity\": {\"enabled\": false}");
}

TEST(WholeFile, IsAnObjectInAFile) {
  EXPECT_FALSE(Parse("[]").ok());
  EXPECT_FALSE(Parse("3").ok());
  EXPECT_HAS(Parse("{\"a\": }").status().message(), "ds.json, line 1, column 7");
  EXPECT_HAS(Parse(R"({"bf16": {"enabled": true}, "bf16": {}})").status().message(),
             "\"bf16\" appears twice");
  const TempFolder folder;
  const std::string path = folder.Write("ds.json", R"({"train_batch_size": 4})");
  EXPECT_EQ(LoadTrainingConfig(path, {}).value().batch.micro_batch, 4u);
  EXPECT_HAS(LoadTrainingConfig(folder.path() + "/no.json", {}).status().message(), "no.json");
}

TEST(KnownKeys, EditDistance) {
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", "abc"), 0u);
  EXPECT_EQ(EditDistance("abcd", "abdc"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

}  // namespace
}  // namespace marea
