#include <algorithm>
#include <cctype>

#include "engine/config/section_parsers.h"

namespace marea {
namespace {

// DeepSpeed's spellings of a float type.
std::optional<std::string> FloatName(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text.starts_with("torch.")) text = text.substr(6);
  if (text == "bf16" || text == "bfloat16") return "bf16";
  if (text == "fp32" || text == "float32" || text == "float") return "fp32";
  if (text == "fp16" || text == "float16" || text == "half") return "fp16";
  return std::nullopt;
}

// fp16|bf16.enabled; "auto" is false, as Transformers' --fp16 and --bf16 are unless given.
bool Enabled(ConfigSection& section) {
  if (section.IsAuto("enabled")) {
    section.log().Filled(section.KeyPath("enabled"), false);
    return false;
  }
  return section.Flag("enabled").value_or(false);
}

bool ParseBf16(ConfigSection& top) {
  // "bfloat16" is the old name; DeepSpeed looks at it only if the new one is absent.
  const bool renamed = !top.Has("bf16") && top.Has("bfloat16");
  const nlohmann::json* object = top.Object(renamed ? "bfloat16" : "bf16");
  if (object == nullptr) return false;
  if (renamed) top.log().Warn("bfloat16 is an old name; call the section bf16");
  ConfigSection section(*object, kBf16, UnknownKey::kWarning, AutoValue::kCannotFill, top.log());
  const bool enabled = Enabled(section);
  for (const char* key : {"bf16_master_weights_and_grads", "bf16_optimizer_states"}) {
    if (section.Flag(key).value_or(false)) {
      section.Fail(key, "master weights and moments are always exact fp32 here; remove the key");
    }
  }
  return enabled;
}

void RefuseFp16(ConfigSection& top) {
  const nlohmann::json* object = top.Object("fp16");
  if (object == nullptr) return;
  ConfigSection section(*object, kFp16, UnknownKey::kWarning, AutoValue::kCannotFill, top.log());
  if (Enabled(section)) {
    section.Fail("enabled",
                 "fp16 needs dynamic loss scaling, which is not there yet; use \"bf16\": "
                 "{\"enabled\": true} instead");
  }
}

void ParseDataTypes(ConfigSection& top, TrainingConfig& config) {
  const nlohmann::json* object = top.Object("data_types");
  if (object == nullptr) return;
  ConfigSection section(*object, kDataTypes, UnknownKey::kWarning, AutoValue::kCannotFill,
                        top.log());
  const bool bf16 = config.precision == Precision::kBf16;
  if (const auto text = section.Text("grad_accum_dtype"); text.has_value()) {
    const std::optional<std::string> name = FloatName(*text);
    if (name == "fp32") {
      config.gradient_type = Precision::kFp32;
    } else if (name == "bf16" && bf16) {
      config.gradient_type = Precision::kBf16;
    } else if (name == "bf16") {
      section.Fail("grad_accum_dtype", "bf16.enabled is not true; use \"fp32\" or enable bf16");
    } else {
      section.Fail("grad_accum_dtype", "it must be \"bf16\" or \"fp32\"");
    }
  }
  if (const auto text = section.Text("param_dtype"); text.has_value()) {
    if (FloatName(*text) != (bf16 ? "bf16" : "fp32")) {
      section.Fail("param_dtype", fmt::format("the run is in {} by bf16.enabled; remove the key",
                                              bf16 ? "bf16" : "fp32"));
    }
  }
}

}  // namespace

void ParsePrecision(ConfigSection& top, TrainingConfig& config) {
  RefuseFp16(top);
  config.precision = ParseBf16(top) ? Precision::kBf16 : Precision::kFp32;
  config.gradient_type = config.precision;
  if (config.precision == Precision::kFp32) {
    top.log().Notice("neither bf16 nor fp16 is enabled: the run is in fp32");
  }
  ParseDataTypes(top, config);
}

}  // namespace marea
