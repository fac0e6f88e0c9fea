// The sections of a DeepSpeed file, one parser each; deepspeed_config.cc calls them in order.
//
// Each reads its part of the top level into `config` and records errors, warnings and notices in
// the section's log. Thread rule: pure functions but for the log.
#pragma once

#include "engine/config/config_section.h"
#include "engine/config/training_config.h"

namespace marea {

// bf16, fp16, data_types: config.precision, config.gradient_type.
void ParsePrecision(ConfigSection& top, TrainingConfig& config);

// The batch triple.
void ParseBatch(ConfigSection& top, const ConfigOverrides& overrides, TrainingConfig& config);

// zero_optimization and below.
void ParseZero(ConfigSection& top, const ConfigOverrides& overrides, TrainingConfig& config);

// optimizer, gradient_clipping.
void ParseOptimizer(ConfigSection& top, const ConfigOverrides& overrides, TrainingConfig& config);

// scheduler. REQUIRES: ParseOptimizer ran.
void ParseScheduler(ConfigSection& top, const ConfigOverrides& overrides, TrainingConfig& config);

// aio.
void ParseAio(ConfigSection& top, TrainingConfig& config);

// Sections that would change what is trained and are not supported: refused where they are on.
void RefuseUnsupported(ConfigSection& top, const ConfigOverrides& overrides);

}  // namespace marea
