// Learning-rate schedules with the meaning of DeepSpeed's (deepspeed/runtime/lr_schedules.py).
//
// When DeepSpeed applies them: its engine steps the scheduler *after* the optimizer, and the
// scheduler starts at iteration -1. So update k (counted from 0) sees iteration k - 1: update 0
// uses the value before the start (warmup_min_lr; for WarmupCosineLR 0, whatever warmup_min_ratio
// says), update 1 uses iteration 0 (the first value of the warm-up, again the minimum), and the
// maximum of WarmupLR is reached at update warmup_num_steps with "log" and warmup_num_steps + 1
// with "linear". Releases whose schedulers did not set the rate on construction ran update 0 with
// the optimizer's own rate; we follow the current ones. The cosine stays at its minimum after the
// last step, also as in current releases.
//
// Thread rule: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "io/status.h"

namespace marea {

enum class LrScheduleKind : uint8_t {
  kConstant,      // no scheduler: the optimizer's rate throughout
  kWarmup,        // WarmupLR: from minimum to maximum, then the maximum
  kWarmupDecay,   // WarmupDecayLR: the same, then linearly to 0 at total_num_steps
  kWarmupCosine,  // WarmupCosineLR: ratios of the optimizer's rate, then half a cosine
};

enum class WarmupType : uint8_t { kLog, kLinear };

// Fields are DeepSpeed's keys, with its defaults.
struct LrSchedule {
  LrScheduleKind kind = LrScheduleKind::kConstant;
  WarmupType warmup_type = WarmupType::kLog;
  int64_t warmup_num_steps = 1000;  // 0 and 1 count as 2, as in DeepSpeed
  int64_t total_num_steps = 0;      // kWarmupDecay, kWarmupCosine

  // kWarmup, kWarmupDecay. Without a maximum: the optimizer's rate for kWarmup, 0.001 for
  // kWarmupDecay.
  double warmup_min_lr = 0.0;
  std::optional<double> warmup_max_lr;

  // kWarmupCosine
  double warmup_min_ratio = 0.0;
  double cos_min_ratio = 0.0001;
};

// InvalidArgument, naming the key, for numbers that make no schedule: a negative or non-finite rate
// or ratio, negative warmup_num_steps, total_num_steps below 1 where it is needed. Fewer total
// steps than warm-up steps are allowed, as in DeepSpeed.
Status CheckLrSchedule(const LrSchedule& schedule);

// The rate that update `update_number`, counted from 0, applies.
// REQUIRES: CheckLrSchedule(schedule) is Ok.
double LearningRate(const LrSchedule& schedule, uint64_t update_number, double base_learning_rate);

}  // namespace marea
