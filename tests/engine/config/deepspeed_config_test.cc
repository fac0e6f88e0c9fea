#include "engine/config/deepspeed_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/config/known_keys.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

Result<TrainingConfig> Parse(const std::string& text, const ConfigOverrides& overrides = {}) {
  return ParseTrainingConfig(text, "ds.json", overrides);
}

// `members` inside an object that is complete otherwise.
TrainingConfig Accept(const std::string& members, const ConfigOverrides& overrides = {}) {
  const Result<TrainingConfig> config =
      Parse("{\"train_micro_batch_size_per_gpu\": 2" +
                (members.empty() ? std::string() : ", " + members) + "}",
            overrides);
  EXPECT_TRUE(config.ok()) << members << " -> " << config.status().message();
  return config.ok() ? config.value() : TrainingConfig();
}

std::string Refuse(const std::string& members, const ConfigOverrides& overrides = {}) {
  const Result<TrainingConfig> config =
      Parse("{\"train_micro_batch_size_per_gpu\": 2, " + members + "}", overrides);
  EXPECT_FALSE(config.ok()) << members;
  if (config.ok()) return "accepted";
  EXPECT_EQ(config.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(config.status().message().rfind("ds.json: ", 0), 0u) << config.status().message();
  EXPECT_EQ(config.status().message().find('\n'), std::string::npos);
  return config.status().message();
}

std::string Zero(const std::string& members) {
  return "\"zero_optimization\": {" + members + "}";
}

bool Mentions(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

#define EXPECT_HAS(message, text)                                        \
  do {                                                                   \
    const std::string has_message = (message);                           \
    EXPECT_NE(has_message.find(text), std::string::npos) << has_message; \
  } while (false)

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

TEST(Optimizer, TypesAndDefaults) {
  for (const char* type : {"Adam", "AdamW", "adamw", "FusedAdam", "CPUAdam", "DeepSpeedCPUAdam"}) {
    const TrainingConfig config =
        Accept("\"optimizer\": {\"type\": \"" + std::string(type) + "\", \"params\": {}}");
    EXPECT_EQ(config.optimizer.learning_rate, 1e-3) << type;
    EXPECT_EQ(config.optimizer.weight_decay, 0.0) << type;
    const bool mapped = std::string(type) == "FusedAdam" || std::string(type).ends_with("CPUAdam");
    EXPECT_EQ(Mentions(config.notices, "mapped to AdamW"), mapped) << type;
  }
  EXPECT_EQ(Accept("").optimizer.learning_rate, 5e-5);
  const TrainingConfig given = Accept(
      R"("optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6,
         "weight_decay": 0.1}}, "gradient_clipping": 0.5)");
  EXPECT_EQ(given.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(given.optimizer.beta1, 0.8);
  EXPECT_EQ(given.optimizer.beta2, 0.95);
  EXPECT_EQ(given.optimizer.epsilon, 1e-6);
  EXPECT_EQ(given.optimizer.weight_decay, 0.1);
  EXPECT_EQ(given.gradient_clipping, 0.5);
  const std::string torch =
      R"("optimizer": {"type": "AdamW", "params": {"torch_adam": true, "adam_w_mode": true}})";
  EXPECT_EQ(Accept(torch).optimizer.weight_decay, 0.01);
}

TEST(Optimizer, AutoIsFilledAsTransformersDoes) {
  const std::string text =
      R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
         "weight_decay": "auto"}}, "gradient_clipping": "auto")";
  const TrainingConfig config = Accept(text);
  EXPECT_EQ(config.optimizer.learning_rate, 5e-5);
  EXPECT_EQ(config.optimizer.beta2, 0.999);
  EXPECT_EQ(config.optimizer.epsilon, 1e-8);
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_TRUE(Mentions(config.notices, "optimizer.params.lr = 5e-05"));
  ConfigOverrides overrides;
  overrides.learning_rate = 7e-4;
  EXPECT_EQ(Accept(text, overrides).optimizer.learning_rate, 7e-4);
}

TEST(Optimizer, Refusals) {
  EXPECT_HAS(Refuse("\"optimizer\": {\"type\": \"Lamb\"}"), "DeepSpeedCPUAdam are supported");
  EXPECT_HAS(Refuse("\"optimizer\": {}"), "optimizer.type is absent");
  const std::pair<std::string, std::string> params[] = {
      {"\"lr\": -1", "optimizer.params.lr"},
      {"\"lr\": \"1e-3\"", "optimizer.params.lr"},
      {"\"betas\": [0.9]", "optimizer.params.betas"},
      {"\"betas\": [0.9, 1.0]", "optimizer.params.betas"},
      {"\"betas\": [\"a\", 0.9]", "optimizer.params.betas"},
      {"\"learning_rate\": 1", "unknown key \"learning_rate\""},
      {"\"amsgrad\": true", "amsgrad"},
      {"\"bias_correction\": false", "bias_correction"},
      {"\"max_grad_norm\": 1.0", "gradient_clipping"},
      {"\"adam_w_mode\": false, \"weight_decay\": 0.1", "adam_w_mode"},
      {"\"torch_adam\": \"auto\", \"adam_w_mode\": \"auto\"",
       "optimizer.params.torch_adam, optimizer.params.adam_w_mode"},
  };
  for (const auto& [text, needed] : params) {
    EXPECT_HAS(Refuse("\"optimizer\": {\"type\": \"Adam\", \"params\": {" + text + "}}"), needed);
  }
  // AdamW decouples whatever the flag says; without decay both are one.
  Accept(
      R"("optimizer": {"type": "AdamW", "params": {"adam_w_mode": false, "weight_decay": 0.1}})");
  Accept(R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false}})");
  EXPECT_HAS(Refuse("\"gradient_clipping\": -1"), "gradient_clipping");
}

TEST(Scheduler, IsRead) {
  const TrainingConfig warmup = Accept(
      R"("optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "scheduler": {"type": "WarmupLR",
         "params": {"warmup_min_lr": 0.001, "warmup_num_steps": 10, "warmup_type": "linear"}})");
  EXPECT_EQ(warmup.schedule.kind, LrScheduleKind::kWarmup);
  EXPECT_EQ(warmup.schedule.warmup_min_lr, 0.001);
  EXPECT_FALSE(warmup.schedule.warmup_max_lr.has_value());
  EXPECT_EQ(warmup.schedule.warmup_num_steps, 10);
  EXPECT_EQ(warmup.schedule.warmup_type, WarmupType::kLinear);
  const TrainingConfig cosine = Accept(
      R"("scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 100,
         "warmup_min_ratio": 0.1, "cos_min_ratio": 0.2}})");
  EXPECT_EQ(cosine.schedule.total_num_steps, 100);
  EXPECT_EQ(cosine.schedule.warmup_min_ratio, 0.1);
  EXPECT_EQ(cosine.schedule.cos_min_ratio, 0.2);
  EXPECT_EQ(Accept("").schedule.kind, LrScheduleKind::kConstant);
}

TEST(Scheduler, AutoAndFlags) {
  const std::string text =
      R"("optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "scheduler": {"type":
         "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
         "warmup_num_steps": "auto", "total_num_steps": "auto"}})";
  const TrainingConfig open = Accept(text);
  EXPECT_EQ(open.schedule.warmup_max_lr, 0.01);
  EXPECT_EQ(open.schedule.warmup_num_steps, 1);
  EXPECT_TRUE(open.schedule_needs_total_steps);
  ConfigOverrides overrides;
  overrides.total_steps = 50;
  overrides.learning_rate = 0.02;
  const TrainingConfig filled = Accept(text, overrides);
  EXPECT_FALSE(filled.schedule_needs_total_steps);
  EXPECT_EQ(filled.schedule.total_num_steps, 50);
  EXPECT_EQ(filled.schedule.warmup_max_lr, 0.02);
  const TrainingConfig fixed =
      Accept(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5}})", overrides);
  EXPECT_EQ(fixed.schedule.warmup_max_lr, 0.02);
  EXPECT_TRUE(Mentions(fixed.notices, "--learning-rate"));
}

TEST(Scheduler, Refusals) {
  const std::pair<std::string, std::string> cases[] = {
      {"\"type\": \"OneCycle\"", "only WarmupLR"},
      {"\"type\": \"WarmupDecayLR\"", "scheduler.params.total_num_steps is absent"},
      {"\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 0}", "at least 1"},
      {"\"type\": \"WarmupLR\", \"params\": {\"total_num_steps\": 5}", "does not take it"},
      {"\"type\": \"WarmupLR\", \"params\": {\"warmup_steps\": 5}", "warmup_num_steps"},
      {"\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": -5}", "warmup_num_steps"},
      {"\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"exp\"}", "\"log\" or \"linear\""},
      {"\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"auto\"}", "cannot be filled"},
      {"\"type\": \"auto\"", "\"auto\" cannot be filled for scheduler.type"},
  };
  for (const auto& [text, needed] : cases) {
    EXPECT_HAS(Refuse("\"scheduler\": {" + text + "}"), needed);
  }
}

TEST(Aio, IsReadAndAligned) {
  const AioConfig aio =
      Accept(
          R"("aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 2, "single_submit": false,
         "overlap_events": true})")
          .aio;
  EXPECT_EQ(aio.block_size, 262144u);
  EXPECT_EQ(aio.queue_depth, 32u);
  EXPECT_EQ(aio.thread_count, 2u);
  EXPECT_EQ(aio.single_submit, false);
  EXPECT_EQ(aio.overlap_events, true);
  EXPECT_EQ(Accept("\"aio\": {\"intra_op_parallelism\": 3}").aio.thread_count, 3u);
  for (const char* size : {"512", "1000"}) {
    const std::string message = Refuse("\"aio\": {\"block_size\": " + std::string(size) + "}");
    EXPECT_HAS(message, "aio.block_size is " + std::string(size));
    EXPECT_HAS(message, "multiple of 4096 bytes: 4096");
  }
  EXPECT_HAS(Refuse("\"aio\": {\"block_size\": 1048577}"), "1052672");
  EXPECT_HAS(Refuse("\"aio\": {\"block_size\": 0}"), "4096");
  EXPECT_HAS(Refuse("\"aio\": {\"queue_depth\": 0}"), "aio.queue_depth");
  EXPECT_TRUE(Mentions(Accept("\"aio\": {\"block_sise\": 1}").warnings, "block_size"));
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
