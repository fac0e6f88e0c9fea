#include "engine/model/config_reader.h"

#include <fmt/format.h>

#include <cmath>

namespace marea {

const nlohmann::json* ConfigReader::Find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string ConfigReader::ValueText(const std::string& name) const {
  const auto found = object_.find(name);
  if (found == object_.end()) return "absent";
  // Bytes that are not UTF-8 must not turn an error message into an exception.
  std::string text = found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  constexpr size_t kLongest = 80;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

void ConfigReader::Fail(const std::string& name, const std::string& rest) {
  if (!status_.ok()) return;
  status_ = Status::InvalidArgument(
      fmt::format("{}: \"{}{}\" is {}, but {}", origin_, prefix_, name, ValueText(name), rest));
}

std::optional<uint32_t> ConfigReader::OptionalCount(std::initializer_list<const char*> names,
                                                    uint32_t limit) {
  for (const char* name : names) {
    const nlohmann::json* value = Find(name);
    if (value == nullptr) continue;
    const bool whole = value->is_number_integer();
    const bool positive = whole && (value->is_number_unsigned() || value->get<int64_t>() > 0) &&
                          value->get<uint64_t>() > 0;
    if (!positive || value->get<uint64_t>() > limit) {
      Fail(name, fmt::format("it must be a whole number from 1 to {}", limit));
      return std::nullopt;
    }
    return static_cast<uint32_t>(value->get<uint64_t>());
  }
  return std::nullopt;
}

uint32_t ConfigReader::Count(std::initializer_list<const char*> names, uint32_t fallback,
                             uint32_t limit) {
  return OptionalCount(names, limit).value_or(fallback);
}

std::optional<uint32_t> ConfigReader::OptionalToken(const char* name, uint32_t vocabulary) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  // -1 is how some published files say "none".
  if (value->is_number_integer() && !value->is_number_unsigned() && value->get<int64_t>() == -1) {
    return std::nullopt;
  }
  const bool whole =
      value->is_number_integer() && (value->is_number_unsigned() || value->get<int64_t>() >= 0);
  if (!whole || value->get<uint64_t>() >= vocabulary) {
    Fail(name, fmt::format("it must be a token id below the vocabulary's size of {}, or null",
                           vocabulary));
    return std::nullopt;
  }
  return static_cast<uint32_t>(value->get<uint64_t>());
}

std::optional<double> ConfigReader::OptionalNumber(const char* name) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    Fail(name, "it must be a number");
    return std::nullopt;
  }
  return value->get<double>();
}

double ConfigReader::Positive(const char* name, double fallback) {
  const double value = OptionalNumber(name).value_or(fallback);
  if (value > 0) return value;
  Fail(name, "it must be greater than 0");
  return fallback;
}

bool ConfigReader::Flag(const char* name, bool fallback) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, "it must be true or false");
  return fallback;
}

std::string ConfigReader::Text(const char* name, const std::string& fallback) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  Fail(name, "it must be a text");
  return fallback;
}

void ConfigReader::RequireFlag(const char* name, bool fallback, bool needed) {
  if (Flag(name, fallback) == needed) return;
  Fail(name, fmt::format("only {} is supported; change the model or train it elsewhere", needed));
}

}  // namespace marea
