#include "engine/config/section_parsers.h"
#include "io/units.h"

namespace marea {
namespace {

OffloadDevice ParseDevice(ConfigSection& section) {
  const std::string device = section.Text("device").value_or("none");
  if (device == "cpu") return OffloadDevice::kCpu;
  if (device == "nvme") return OffloadDevice::kNvme;
  if (device != "none") section.Fail("device", "it must be \"none\", \"cpu\" or \"nvme\"");
  return OffloadDevice::kNone;
}

// REQUIRES: device is kNvme. Whether the path can be used is found out where it is opened.
void ParseNvmePath(const nlohmann::json& object, ConfigSection& section,
                   const ConfigOverrides& overrides, OffloadConfig& offload) {
  const std::optional<std::string> path = section.Text("nvme_path");
  if (path.has_value() && !path->empty()) {
    offload.nvme_path = path;
    return;
  }
  if (overrides.nvme_paths_given) return;
  std::string why = "is absent";
  if (section.IsAuto("nvme_path")) {
    why = "is \"auto\", which nothing can fill";
  } else if (path.has_value()) {
    why = "is empty";
  } else if (object.contains("nvme_path")) {
    why = "is null";
  }
  section.log().Fail(fmt::format(
      "{} is \"nvme\", but {} {}: name a folder on the drive there, or pass --nvme PATH",
      section.KeyPath("device"), section.KeyPath("nvme_path"), why));
}

OffloadConfig ParseOffload(const nlohmann::json& object, std::string_view path,
                           const ConfigOverrides& overrides, ParseLog& log) {
  ConfigSection section(object, path, UnknownKey::kError, AutoValue::kDefault, log);
  OffloadConfig offload;
  offload.present = true;
  offload.device = ParseDevice(section);
  if (offload.device == OffloadDevice::kNvme) {
    ParseNvmePath(object, section, overrides, offload);
  } else {
    offload.nvme_path = section.Text("nvme_path");
  }
  offload.pin_memory = section.Flag("pin_memory");
  offload.buffer_count = section.Count("buffer_count");
  if (path == kOffloadParam) {
    offload.buffer_size = section.Count("buffer_size");
    offload.max_in_cpu = section.Count("max_in_cpu");
  } else {
    offload.ratio = section.Number("ratio").value_or(1.0);
    if (offload.ratio < 0 || offload.ratio > 1) section.Fail("ratio", "it must be from 0 to 1");
  }
  return offload;
}

// cpu_offload and cpu_offload_param: one flag each, before offload_* existed.
void ParseDeprecatedOffload(ConfigSection& zero, const char* old_key, const char* new_key,
                            OffloadConfig& offload) {
  if (!zero.Has(old_key)) return;
  if (zero.Has(new_key)) {
    zero.Fail(old_key, fmt::format("{} replaces it and is given too; remove the old key", new_key));
    return;
  }
  zero.log().Warn(fmt::format("{} is deprecated; write \"{}\": {{\"device\": \"cpu\"}}",
                              zero.KeyPath(old_key), new_key));
  if (zero.Flag(old_key).value_or(false)) {
    offload.present = true;
    offload.device = OffloadDevice::kCpu;
  }
}

// DeepSpeed offloads parameters at stage 3 only, and optimizer states from stage 1.
void DropBelowStage(uint32_t stage, uint32_t needed, std::string_view path, ParseLog& log,
                    OffloadConfig& offload) {
  if (!offload.present || stage >= needed) return;
  if (offload.device != OffloadDevice::kNone) {
    log.NoEffect(std::string(path), needed == 3
                                        ? "parameters are offloaded at stage 3 only"
                                        : "optimizer states are offloaded from stage 1 only");
  }
  offload = OffloadConfig();
}

void ParseZeroObject(const nlohmann::json& object, const ConfigOverrides& overrides, ParseLog& log,
                     ZeroConfig& config) {
  ConfigSection zero(object, kZero, UnknownKey::kError, AutoValue::kDefault, log);
  const uint64_t stage = zero.Count("stage").value_or(0);
  if (stage > 3) zero.Fail("stage", "it must be 0, 1, 2 or 3");
  config.stage = static_cast<uint32_t>(stage);
  for (const char* key : {"param_persistence_threshold", "stage3_param_persistence_threshold"}) {
    if (const auto value = zero.Count(key)) config.persistence_threshold = *value;
  }
  if (zero.Has("zenflow")) {
    zero.Fail("zenflow", "ZenFlow updates weights late, and every update here is exact; remove it");
  }
  if (const auto* section = zero.Object("offload_param"); section != nullptr) {
    config.offload_param = ParseOffload(*section, kOffloadParam, overrides, log);
  }
  if (const auto* section = zero.Object("offload_optimizer"); section != nullptr) {
    config.offload_optimizer = ParseOffload(*section, kOffloadOptimizer, overrides, log);
  }
  if (config.offload_optimizer.ratio < 1 && stage != 3) {
    log.Fail(fmt::format("{}.ratio is {}, but a share of the states is offloaded at stage 3 only",
                         kOffloadOptimizer, config.offload_optimizer.ratio));
  }
  ParseDeprecatedOffload(zero, "cpu_offload", "offload_optimizer", config.offload_optimizer);
  ParseDeprecatedOffload(zero, "cpu_offload_param", "offload_param", config.offload_param);
  DropBelowStage(config.stage, 3, kOffloadParam, log, config.offload_param);
  DropBelowStage(config.stage, 1, kOffloadOptimizer, log, config.offload_optimizer);
}

}  // namespace

void ParseZero(ConfigSection& top, const ConfigOverrides& overrides, TrainingConfig& config) {
  const nlohmann::json* value = top.Raw(kZero);
  if (value == nullptr) return;
  if (value->is_boolean()) {
    // The first form of the section: on or off.
    top.log().Warn("zero_optimization as true or false is deprecated; write {\"stage\": 1} or {}");
    config.zero.stage = value->get<bool>() ? 1 : 0;
  } else if (value->is_object()) {
    ParseZeroObject(*value, overrides, top.log(), config.zero);
  } else {
    top.Fail(kZero, "it must be an object: {...}");
  }
}

void ParseAio(ConfigSection& top, TrainingConfig& config) {
  const nlohmann::json* object = top.Object(kAio);
  if (object == nullptr) return;
  ConfigSection section(*object, kAio, UnknownKey::kWarning, AutoValue::kCannotFill, top.log());
  AioConfig& aio = config.aio;
  aio.block_size = section.Count("block_size");
  if (aio.block_size.has_value() && (*aio.block_size == 0 || *aio.block_size % kPageBytes != 0)) {
    section.Fail("block_size",
                 fmt::format("direct I/O needs a multiple of {} bytes: {} is the next", kPageBytes,
                             RoundUp(std::max<uint64_t>(*aio.block_size, 1), kPageBytes)));
  }
  const auto positive = [&](const char* key) -> std::optional<uint64_t> {
    const std::optional<uint32_t> value = section.Count32(key);
    return value.has_value() ? std::optional<uint64_t>(*value) : std::nullopt;
  };
  aio.queue_depth = positive("queue_depth");
  aio.thread_count = positive("intra_op_parallelism");
  const std::optional<uint64_t> old_name = positive("thread_count");
  if (!aio.thread_count.has_value()) aio.thread_count = old_name;
  aio.single_submit = section.Flag("single_submit");
  aio.overlap_events = section.Flag("overlap_events");
  if (section.Flag("use_gds").value_or(false)) {
    section.Fail("use_gds", "GPUDirect Storage is not supported; remove the key");
  }
}

}  // namespace marea
