#include "engine/config/config_section.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>

namespace marea {

using nlohmann::json;

namespace {

std::string Shortened(const json& value) {
  // Bytes that are not UTF-8 must not turn an error message into an exception.
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr size_t kLongest = 80;
  return text.size() > kLongest ? fmt::format("{}...", text.substr(0, kLongest)) : text;
}

// A whole number, 0 or more, however it is written: 3000000000, 3e9, 3000000000.0.
std::optional<uint64_t> WholeNumber(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (!value.is_number_float()) return std::nullopt;  // negative integers are signed, not unsigned
  const double number = value.get<double>();
  constexpr double kLimit = 9007199254740992.0 * 1024;  // 2^63: converts without overflow
  if (!(number >= 0) || number >= kLimit || number != std::floor(number)) return std::nullopt;
  return static_cast<uint64_t>(number);
}

}  // namespace

void ParseLog::Fail(const std::string& message) {
  if (status_.ok()) status_ = Status::InvalidArgument(fmt::format("{}: {}", origin_, message));
}

void ParseLog::Warn(const std::string& message) {
  warnings_.push_back(fmt::format("{}: {}", origin_, message));
}

void ParseLog::Notice(const std::string& message) {
  notices_.push_back(fmt::format("{}: {}", origin_, message));
}

void ParseLog::NoEffect(const std::string& key_path, std::string_view reason) {
  for (auto& [known, keys] : no_effect_) {
    if (known == reason) {
      keys.push_back(key_path);
      return;
    }
  }
  no_effect_.emplace_back(reason, std::vector<std::string>{key_path});
}

Status ParseLog::Finish(TrainingConfig& config) {
  if (!status_.ok()) return status_;
  if (!not_filled_.empty()) {
    return Status::InvalidArgument(
        fmt::format("{}: \"auto\" cannot be filled for {}: give a value or remove the key", origin_,
                    fmt::join(not_filled_, ", ")));
  }
  if (!filled_.empty()) Notice(fmt::format("\"auto\" became {}", fmt::join(filled_, ", ")));
  for (const auto& [reason, keys] : no_effect_) {
    Notice(fmt::format("without effect here: {} ({})", fmt::join(keys, ", "), reason));
  }
  config.warnings = std::move(warnings_);
  config.notices = std::move(notices_);
  return Status::Ok();
}

ConfigSection::ConfigSection(const json& object, std::string_view path, UnknownKey unknown,
                             AutoValue auto_value, ParseLog& log)
    : object_(object), path_(path), auto_value_(auto_value), log_(log) {
  for (const auto& item : object_.items()) CheckKey(item.key(), unknown);
}

void ConfigSection::CheckKey(const std::string& key, UnknownKey unknown) {
  for (const KeySpec& spec : KeysOf(path_)) {
    if (spec.name != key) continue;
    if (!spec.no_effect.empty() && Has(key)) {
      CheckKind(spec);
      log_.NoEffect(KeyPath(key), spec.no_effect);
    }
    return;
  }
  std::string message = fmt::format("unknown key {} {}", Shortened(json(key)), SectionName(path_));
  const std::string suggestion = SuggestKey(path_, key);
  if (unknown == UnknownKey::kError) {
    log_.Fail(message + ": " + (suggestion.empty() ? "remove it" : suggestion));
  } else {
    log_.Warn(message + " is ignored" + (suggestion.empty() ? "" : ": " + suggestion));
  }
}

void ConfigSection::CheckKind(const KeySpec& spec) {
  if (IsAuto(spec.name)) return;  // it would be filled, and then have no effect either
  switch (spec.kind) {
    case KeyKind::kFlag:
      Flag(spec.name);
      break;
    case KeyKind::kCount:
      Count(spec.name);
      break;
    case KeyKind::kNumber:
      Number(spec.name);
      break;
    case KeyKind::kText:
      Text(spec.name);
      break;
    case KeyKind::kObject:
      Object(spec.name);
      break;
    case KeyKind::kAny:
      break;
  }
}

const json* ConfigSection::Raw(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigSection::IsAuto(std::string_view key) const {
  const json* value = Raw(key);
  return value != nullptr && value->is_string() && value->get_ref<const std::string&>() == "auto";
}

const json* ConfigSection::Value(std::string_view key) {
  if (!IsAuto(key)) return Raw(key);
  if (auto_value_ == AutoValue::kCannotFill) log_.CannotFill(KeyPath(key));
  return nullptr;
}

std::string ConfigSection::KeyPath(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void ConfigSection::Fail(std::string_view key, const std::string& rest) {
  const auto found = object_.find(key);
  const std::string value = found == object_.end() ? "absent" : Shortened(*found);
  log_.Fail(fmt::format("{} is {}, but {}", KeyPath(key), value, rest));
}

std::optional<bool> ConfigSection::Flag(std::string_view key) {
  const json* value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  // DeepSpeed takes 0 and 1 too.
  const std::optional<uint64_t> number = WholeNumber(*value);
  if (number.has_value() && *number <= 1) return *number == 1;
  Fail(key, "it must be true or false");
  return std::nullopt;
}

std::optional<uint64_t> ConfigSection::Count(std::string_view key) {
  const json* value = Value(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<uint64_t> number = WholeNumber(*value);
  if (!number.has_value()) Fail(key, "it must be a whole number that is not negative");
  return number;
}

std::optional<uint32_t> ConfigSection::Count32(std::string_view key) {
  const std::optional<uint64_t> number = Count(key);
  if (!number.has_value()) return std::nullopt;
  if (*number == 0 || *number > std::numeric_limits<uint32_t>::max()) {
    Fail(key, "it must be a whole number from 1 to 4294967295");
    return std::nullopt;
  }
  return static_cast<uint32_t>(*number);
}

std::optional<double> ConfigSection::Number(std::string_view key) {
  const json* value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  Fail(key, "it must be a number");
  return std::nullopt;
}

std::optional<double> ConfigSection::NonNegative(std::string_view key) {
  const std::optional<double> number = Number(key);
  if (!number.has_value() || *number >= 0) return number;
  Fail(key, "it must not be negative");
  return std::nullopt;
}

std::optional<std::string> ConfigSection::Text(std::string_view key) {
  const json* value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(key, "it must be a text");
  return std::nullopt;
}

const json* ConfigSection::Object(std::string_view key) {
  const json* value = Value(key);
  if (value == nullptr || value->is_object()) return value;
  Fail(key, "it must be an object: {...}");
  return nullptr;
}

}  // namespace marea
