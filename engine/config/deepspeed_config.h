// Reads a DeepSpeed JSON file into a TrainingConfig.
//
// The rules: unknown keys inside zero_optimization, and below, are errors that name the nearest key
// and, for a key of another section, where it belongs; an unknown top-level key is a warning; a
// known key without effect here is checked for sense and listed once with the reason; "auto" is
// filled from flags, else with what Transformers' Trainer uses; flags override the file. Comments
// are not JSON; a key that appears twice is refused.
//
// "auto": train_micro_batch_size_per_gpu 8, gradient_accumulation_steps 1, train_batch_size their
// product, gradient_clipping 1.0, bf16.enabled and fp16.enabled false, lr 5e-5, betas 0.9 and
// 0.999, eps 1e-8, weight_decay 0, warmup_min_lr 0, warmup_max_lr the learning rate,
// warmup_num_steps 1, total_num_steps the steps of the run; inside zero_optimization the default.
// No optimizer section at all: AdamW with those same values, lr 5e-5, as the Trainer does. A
// section without a key: DeepSpeed's default (lr 1e-3).
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "engine/config/training_config.h"
#include "io/status.h"

namespace marea {

// `origin` is the path that messages name. InvalidArgument: one sentence with file and key path.
Result<TrainingConfig> ParseTrainingConfig(const std::string& text, const std::string& origin,
                                           const ConfigOverrides& overrides);

// Reads the file first. InvalidArgument if it is missing, a folder, or larger than 16 MiB. Blocks.
Result<TrainingConfig> LoadTrainingConfig(const std::string& path,
                                          const ConfigOverrides& overrides);

// A run without a file: what ParseTrainingConfig makes of `{"train_micro_batch_size_per_gpu":
// "auto", "gradient_accumulation_steps": "auto"}`.
Result<TrainingConfig> DefaultTrainingConfig(const ConfigOverrides& overrides);

}  // namespace marea
