#include "engine/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace marea {
namespace {

constexpr double kWarmupDecayDefaultMaxLr = 0.001;

// Steps of the warm-up. Two at least: the logarithm of one step would divide by zero.
int64_t WarmupSteps(const LrSchedule& schedule) {
  return std::max<int64_t>(2, schedule.warmup_num_steps);
}

// How far the warm-up is at `iteration`, 0 to 1. REQUIRES: iteration < WarmupSteps(schedule).
double WarmupProgress(const LrSchedule& schedule, int64_t iteration) {
  const double steps = static_cast<double>(WarmupSteps(schedule));
  if (schedule.warmup_type == WarmupType::kLinear) return static_cast<double>(iteration) / steps;
  return std::log(static_cast<double>(iteration + 1)) * (1.0 / std::log(steps));
}

double WarmupRate(const LrSchedule& schedule, int64_t iteration, double base_learning_rate) {
  const bool decays = schedule.kind == LrScheduleKind::kWarmupDecay;
  const double low = schedule.warmup_min_lr;
  const double high =
      schedule.warmup_max_lr.value_or(decays ? kWarmupDecayDefaultMaxLr : base_learning_rate);
  if (iteration < 0) return low;
  const int64_t warmup = WarmupSteps(schedule);
  double gamma = 1.0;
  if (iteration < warmup) {
    gamma = WarmupProgress(schedule, iteration);
  } else if (decays) {
    const double left = static_cast<double>(schedule.total_num_steps - iteration);
    const double span = static_cast<double>(schedule.total_num_steps - warmup);
    gamma = std::max(0.0, left / std::max(1.0, span));
  }
  return low + (high - low) * gamma;
}

double CosineRatio(const LrSchedule& schedule, int64_t iteration) {
  if (iteration < 0) return 0.0;
  const int64_t warmup = WarmupSteps(schedule);
  if (iteration < warmup) {
    const double low = schedule.warmup_min_ratio;
    return low + WarmupProgress(schedule, iteration) * (1.0 - low);
  }
  const double done = static_cast<double>(iteration - warmup + 1);
  const double span = static_cast<double>(std::max<int64_t>(1, schedule.total_num_steps - warmup));
  const double cosine = (1.0 + std::cos(std::numbers::pi * std::min(1.0, done / span))) / 2.0;
  return std::max(0.0, schedule.cos_min_ratio + (1.0 - schedule.cos_min_ratio) * cosine);
}

Status CheckRate(const char* key, double value) {
  if (std::isfinite(value) && value >= 0.0) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("scheduler.params.{} is {}; give a finite number of at least 0", key, value));
}

}  // namespace

Status CheckLrSchedule(const LrSchedule& schedule) {
  if (schedule.kind == LrScheduleKind::kConstant) return Status::Ok();
  if (schedule.warmup_num_steps < 0) {
    return Status::InvalidArgument(
        fmt::format("scheduler.params.warmup_num_steps is {}; give the number of warm-up steps",
                    schedule.warmup_num_steps));
  }
  if (schedule.kind != LrScheduleKind::kWarmup && schedule.total_num_steps < 1) {
    return Status::InvalidArgument(
        fmt::format("scheduler.params.total_num_steps is {}; give the number of steps of the whole "
                    "training, at least 1",
                    schedule.total_num_steps));
  }
  if (schedule.kind == LrScheduleKind::kWarmupCosine) {
    MAREA_RETURN_IF_ERROR(CheckRate("warmup_min_ratio", schedule.warmup_min_ratio));
    return CheckRate("cos_min_ratio", schedule.cos_min_ratio);
  }
  MAREA_RETURN_IF_ERROR(CheckRate("warmup_min_lr", schedule.warmup_min_lr));
  return CheckRate("warmup_max_lr", schedule.warmup_max_lr.value_or(0.0));
}

double LearningRate(const LrSchedule& schedule, uint64_t update_number, double base_learning_rate) {
  const int64_t iteration = static_cast<int64_t>(update_number) - 1;
  switch (schedule.kind) {
    case LrScheduleKind::kConstant:
      break;
    case LrScheduleKind::kWarmup:
    case LrScheduleKind::kWarmupDecay:
      return WarmupRate(schedule, iteration, base_learning_rate);
    case LrScheduleKind::kWarmupCosine:
      return base_learning_rate * CosineRatio(schedule, iteration);
  }
  return base_learning_rate;
}

}  // namespace marea
