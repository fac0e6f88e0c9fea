#include <gtest/gtest.h>

#include <string>

#include "engine/config/deepspeed_config.h"
#include "tests/engine/config/config_helpers.h"

namespace marea {
namespace {

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

}  // namespace
}  // namespace marea
