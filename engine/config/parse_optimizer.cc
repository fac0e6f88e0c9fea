#include <algorithm>
#include <cctype>

#include "engine/config/section_parsers.h"

namespace marea {
namespace {

// Transformers' TrainingArguments: learning_rate, max_grad_norm.
constexpr double kTrainerLearningRate = 5e-5;
constexpr double kTrainerMaxGradNorm = 1.0;
// torch.optim.AdamW's, which is what "torch_adam" runs.
constexpr double kTorchAdamWWeightDecay = 0.01;

constexpr const char* kSupported =
    "Adam, AdamW, FusedAdam, CPUAdam and DeepSpeedCPUAdam are supported";

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Which Adam it is; false if it is none.
bool ParseType(ConfigSection& section, bool& names_adamw) {
  const std::optional<std::string> type = section.Text("type");
  if (!type.has_value()) {
    if (!section.IsAuto("type")) {
      section.Fail("type", fmt::format("an optimizer section needs one: {}", kSupported));
    }
    return false;
  }
  const std::string name = LowerCase(*type);
  names_adamw = name == "adamw";
  if (name == "adam" || name == "adamw") return true;
  if (name == "fusedadam" || name == "cpuadam" || name == "deepspeedcpuadam") {
    section.log().Notice(fmt::format(
        "optimizer.type {} is mapped to AdamW: one implementation runs wherever the state is",
        *type));
    return true;
  }
  section.Fail("type", fmt::format("only {}", kSupported));
  return false;
}

void ParseBetas(ConfigSection& section, OptimizerConfig& optimizer) {
  if (section.IsAuto("betas")) {
    section.log().Filled(section.KeyPath("betas"), "[0.9, 0.999]");
    return;
  }
  const nlohmann::json* betas = section.Raw("betas");
  if (betas == nullptr) return;
  const auto in_range = [](const nlohmann::json& beta) {
    return beta.is_number() && beta.get<double>() >= 0 && beta.get<double>() < 1;
  };
  if (!betas->is_array() || betas->size() != 2 || !in_range((*betas)[0]) ||
      !in_range((*betas)[1])) {
    section.Fail("betas", "it must be two numbers from 0 to below 1: [0.9, 0.999]");
    return;
  }
  optimizer.beta1 = (*betas)[0].get<double>();
  optimizer.beta2 = (*betas)[1].get<double>();
}

// A number that "auto" fills with what Transformers uses.
void ParseNumber(ConfigSection& section, const char* key, double auto_value, double& value) {
  if (section.IsAuto(key)) {
    value = auto_value;
    section.log().Filled(section.KeyPath(key), value);
    return;
  }
  value = section.NonNegative(key).value_or(value);
}

// Choices of Adam that would train something else than AdamW does.
void RefuseOtherAdams(ConfigSection& section, bool names_adamw, double weight_decay) {
  for (const char* key : {"adam_w_mode", "adamw_mode"}) {  // FusedAdam's and CPUAdam's names
    // AdamW is AdamW whatever the flag says; and without weight decay both are the same.
    if (!section.Flag(key).value_or(true) && !names_adamw && weight_decay != 0) {
      section.Fail(key,
                   "weight decay as an L2 term (plain Adam) is not supported; remove the key, or "
                   "set weight_decay to 0");
    }
  }
  if (!section.Flag("bias_correction").value_or(true)) {
    section.Fail("bias_correction", "Adam without bias correction is not supported");
  }
  if (section.Flag("amsgrad").value_or(false)) {
    section.Fail("amsgrad", "AMSGrad is not supported; remove the key");
  }
  if (!section.Flag("fp32_optimizer_states").value_or(true)) {
    section.Fail("fp32_optimizer_states", "moments are kept in fp32; remove the key");
  }
  if (section.Number("max_grad_norm").value_or(0) > 0) {
    section.Fail("max_grad_norm", "clipping is set by gradient_clipping at the top level; move it");
  }
}

void ParseParams(const nlohmann::json& object, bool names_adamw, ParseLog& log,
                 OptimizerConfig& optimizer) {
  ConfigSection section(object, kOptimizerParams, UnknownKey::kError, AutoValue::kCannotFill, log);
  if (section.Flag("torch_adam").value_or(false)) {
    optimizer.weight_decay = names_adamw ? kTorchAdamWWeightDecay : 0.0;
    log.Notice("optimizer.params.torch_adam: the same AdamW runs either way");
  }
  ParseNumber(section, "lr", kTrainerLearningRate, optimizer.learning_rate);
  ParseNumber(section, "eps", 1e-8, optimizer.epsilon);
  ParseNumber(section, "weight_decay", 0.0, optimizer.weight_decay);
  ParseBetas(section, optimizer);
  RefuseOtherAdams(section, names_adamw, optimizer.weight_decay);
}

}  // namespace

void ParseOptimizer(ConfigSection& top, const ConfigOverrides& overrides, TrainingConfig& config) {
  if (const auto* object = top.Object(kOptimizer); object != nullptr) {
    ConfigSection section(*object, kOptimizer, UnknownKey::kWarning, AutoValue::kCannotFill,
                          top.log());
    bool names_adamw = false;
    if (ParseType(section, names_adamw)) {
      if (const auto* params = section.Object("params"); params != nullptr) {
        ParseParams(*params, names_adamw, top.log(), config.optimizer);
      }
    }
  } else {
    config.optimizer.learning_rate = kTrainerLearningRate;
    if (!overrides.learning_rate.has_value()) {
      top.log().Notice(fmt::format("no optimizer section: AdamW with lr {}", kTrainerLearningRate));
    }
  }
  if (overrides.learning_rate.has_value()) {
    config.optimizer.learning_rate = *overrides.learning_rate;
  }
  ParseNumber(top, "gradient_clipping", kTrainerMaxGradNorm, config.gradient_clipping);
}

}  // namespace marea
