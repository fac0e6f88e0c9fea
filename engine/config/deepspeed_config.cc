#include "engine/config/deepspeed_config.h"

#include "engine/config/json_text.h"
#include "engine/config/section_parsers.h"
#include "io/units.h"

namespace marea {
namespace {

// Whether the value holds `"enabled": true` at any depth (compression_training nests them).
bool AnyEnabled(const nlohmann::json& value) {
  if (!value.is_structured()) return false;
  for (const auto& item : value.items()) {
    if (item.key() == "enabled" && item.value().is_boolean() && item.value().get<bool>()) {
      return true;
    }
    if (AnyEnabled(item.value())) return true;
  }
  return false;
}

}  // namespace

void RefuseUnsupported(ConfigSection& top, const ConfigOverrides& overrides) {
  constexpr const char* kSections[] = {
      "amp",           "torch_autocast",       "curriculum_learning",    "data_efficiency",
      "elasticity",    "compression_training", "progressive_layer_drop", "quantize_training",
      "hybrid_engine", "expert_parallel",
  };
  for (const char* key : kSections) {
    const nlohmann::json* section = top.Object(key);
    if (section != nullptr && AnyEnabled(*section)) {
      top.log().Fail(fmt::format(
          "{} is enabled, but it is not supported and would change what is trained; remove it",
          key));
    }
  }
  if (const auto* section = top.Object("sparse_attention");
      section != nullptr && !section->empty()) {
    top.log().Fail("sparse_attention is not supported; remove it");
  }
  if (const auto size = top.Count("sequence_parallel_size"); size.value_or(1) > 1) {
    top.Fail("sequence_parallel_size", "sequences are not split over ranks; remove the key");
  }
  if (const auto* section = top.Object("tensor_parallel"); section != nullptr) {
    const auto size = section->find("autotp_size");
    if (size != section->end() && size->is_number() && size->get<double>() > 1) {
      top.log().Fail(
          "tensor_parallel.autotp_size is above 1, but ranks are data-parallel only; "
          "remove the section");
    }
  }
  if (const auto op = top.Text("gradient_allreduce_op");
      op.has_value() && *op != "average" && *op != "avg" && *op != "mean") {
    if (overrides.world_size > 1 || *op != "sum") {
      top.Fail("gradient_allreduce_op", "the loss is the mean over all ranks' tokens; remove it");
    }
  }
}

Result<TrainingConfig> ParseTrainingConfig(const std::string& text, const std::string& origin,
                                           const ConfigOverrides& overrides) {
  MAREA_CHECK(overrides.world_size > 0, "a run has at least one rank");
  MAREA_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJsonText(text, origin));
  if (!parsed.is_object()) {
    return Status::InvalidArgument(
        fmt::format("{}: a DeepSpeed file is a JSON object: {{...}}", origin));
  }
  ParseLog log(origin);
  TrainingConfig config;
  ConfigSection top(parsed, kTopLevel, UnknownKey::kWarning, AutoValue::kCannotFill, log);
  ParsePrecision(top, config);
  ParseBatch(top, overrides, config);
  ParseZero(top, overrides, config);
  ParseOptimizer(top, overrides, config);
  ParseScheduler(top, overrides, config);
  ParseAio(top, config);
  RefuseUnsupported(top, overrides);
  MAREA_RETURN_IF_ERROR(log.Finish(config));
  return config;
}

Result<TrainingConfig> LoadTrainingConfig(const std::string& path,
                                          const ConfigOverrides& overrides) {
  constexpr uint64_t kLargest = 16 * kMiB;
  MAREA_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kLargest));
  return ParseTrainingConfig(text, path, overrides);
}

Result<TrainingConfig> DefaultTrainingConfig(const ConfigOverrides& overrides) {
  return ParseTrainingConfig(
      R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})",
      "no --config", overrides);
}

}  // namespace marea
