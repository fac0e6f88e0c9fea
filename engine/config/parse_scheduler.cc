#include <limits>

#include "engine/config/section_parsers.h"

namespace marea {
namespace {

bool ParseType(ConfigSection& section, LrScheduleKind& kind) {
  const std::optional<std::string> type = section.Text("type");
  if (!type.has_value()) {
    if (!section.IsAuto("type")) {
      section.Fail("type",
                   "a scheduler section needs one: WarmupLR, WarmupDecayLR or "
                   "WarmupCosineLR");
    }
    return false;
  }
  if (*type == "WarmupLR") {
    kind = LrScheduleKind::kWarmup;
  } else if (*type == "WarmupDecayLR") {
    kind = LrScheduleKind::kWarmupDecay;
  } else if (*type == "WarmupCosineLR") {
    kind = LrScheduleKind::kWarmupCosine;
  } else {
    section.Fail("type", "only WarmupLR, WarmupDecayLR and WarmupCosineLR are supported");
    return false;
  }
  return true;
}

// Which parameters each scheduler takes; DeepSpeed passes them as arguments, so others are errors.
bool Takes(LrScheduleKind kind, std::string_view key) {
  const bool cosine = kind == LrScheduleKind::kWarmupCosine;
  if (key == "warmup_min_lr" || key == "warmup_max_lr") return !cosine;
  if (key == "warmup_min_ratio" || key == "cos_min_ratio") return cosine;
  if (key == "total_num_steps") return kind != LrScheduleKind::kWarmup;
  return true;
}

std::optional<int64_t> Steps(ConfigSection& section, const char* key) {
  const std::optional<uint64_t> steps = section.Count(key);
  if (!steps.has_value()) return std::nullopt;
  if (*steps > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    section.Fail(key, "it is too large");
    return std::nullopt;
  }
  return static_cast<int64_t>(*steps);
}

void ParseRates(ConfigSection& section, const ConfigOverrides& overrides, double learning_rate,
                LrSchedule& schedule) {
  if (section.IsAuto("warmup_min_lr")) {
    section.log().Filled(section.KeyPath("warmup_min_lr"), 0);
  } else {
    schedule.warmup_min_lr = section.NonNegative("warmup_min_lr").value_or(0.0);
  }
  if (section.IsAuto("warmup_max_lr")) {
    schedule.warmup_max_lr = learning_rate;
    section.log().Filled(section.KeyPath("warmup_max_lr"), learning_rate);
    return;
  }
  schedule.warmup_max_lr = section.NonNegative("warmup_max_lr");
  // The maximum is the rate of the run, so the flag replaces it too.
  if (overrides.learning_rate.has_value() && schedule.kind != LrScheduleKind::kWarmupCosine) {
    if (schedule.warmup_max_lr.value_or(learning_rate) != learning_rate) {
      section.log().Notice(fmt::format("--learning-rate {} replaces {} = {}", learning_rate,
                                       section.KeyPath("warmup_max_lr"), *schedule.warmup_max_lr));
    }
    schedule.warmup_max_lr = learning_rate;
  }
}

void ParseSteps(ConfigSection& section, const ConfigOverrides& overrides, TrainingConfig& config) {
  LrSchedule& schedule = config.schedule;
  if (section.IsAuto("warmup_num_steps")) {
    schedule.warmup_num_steps = 1;  // Transformers' warmup_steps is 0, given to DeepSpeed as 1
    section.log().Filled(section.KeyPath("warmup_num_steps"), 1);
  } else if (const auto steps = Steps(section, "warmup_num_steps"); steps.has_value()) {
    schedule.warmup_num_steps = *steps;
  }
  if (schedule.kind == LrScheduleKind::kWarmup) return;
  if (!section.IsAuto("total_num_steps")) {
    const std::optional<int64_t> steps = Steps(section, "total_num_steps");
    if (!steps.has_value()) {
      section.Fail("total_num_steps", "this scheduler needs it; \"auto\" takes the run's steps");
    } else if (*steps == 0) {
      section.Fail("total_num_steps", "it must be at least 1");
    }
    schedule.total_num_steps = steps.value_or(0);
  } else if (overrides.total_steps.has_value()) {
    schedule.total_num_steps = static_cast<int64_t>(*overrides.total_steps);
    section.log().Filled(section.KeyPath("total_num_steps"), *overrides.total_steps);
  } else {
    config.schedule_needs_total_steps = true;
    section.log().Filled(section.KeyPath("total_num_steps"), "the steps of the run");
  }
}

void ParseParams(const nlohmann::json& object, const ConfigOverrides& overrides, ParseLog& log,
                 TrainingConfig& config) {
  ConfigSection section(object, kSchedulerParams, UnknownKey::kError, AutoValue::kCannotFill, log);
  LrSchedule& schedule = config.schedule;
  for (const KeySpec& spec : KeysOf(kSchedulerParams)) {
    if (section.Has(spec.name) && !Takes(schedule.kind, spec.name)) {
      section.Fail(spec.name, "this type of scheduler does not take it; remove it");
    }
  }
  if (section.Number("last_batch_iteration").value_or(-1) != -1) {
    section.Fail("last_batch_iteration", "the schedule starts with the run; remove the key");
  }
  ParseRates(section, overrides, config.optimizer.learning_rate, schedule);
  ParseSteps(section, overrides, config);
  schedule.warmup_min_ratio = section.NonNegative("warmup_min_ratio").value_or(0.0);
  schedule.cos_min_ratio = section.NonNegative("cos_min_ratio").value_or(1e-4);
  const std::string warmup = section.Text("warmup_type").value_or("log");
  if (warmup == "linear") schedule.warmup_type = WarmupType::kLinear;
  if (warmup != "linear" && warmup != "log") {
    section.Fail("warmup_type", "it must be \"log\" or \"linear\"");
  }
}

}  // namespace

void ParseScheduler(ConfigSection& top, const ConfigOverrides& overrides, TrainingConfig& config) {
  const nlohmann::json* object = top.Object(kScheduler);
  if (object == nullptr) return;
  ConfigSection section(*object, kScheduler, UnknownKey::kWarning, AutoValue::kCannotFill,
                        top.log());
  LrSchedule& schedule = config.schedule;
  if (!ParseType(section, schedule.kind)) return;
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json* params = section.Object("params");
  ParseParams(params == nullptr ? none : *params, overrides, top.log(), config);
}

}  // namespace marea
