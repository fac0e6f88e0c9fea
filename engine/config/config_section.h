// One object of a DeepSpeed file, read key by key against its table of known keys.
//
// ParseLog collects what the whole file gives rise to: the first error (later reads go on and
// return nothing, so parsers read in a row and ask once), warnings, keys without effect by reason,
// "auto" values that were filled, and those that nothing can fill.
//
// Owner: the parser, for the length of one parse. Thread rule: one thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config/known_keys.h"
#include "engine/config/training_config.h"
#include "io/status.h"

namespace marea {

class ParseLog {
 public:
  explicit ParseLog(std::string origin) : origin_(std::move(origin)) {}

  // Records "<origin>: <message>" unless an error is already there.
  void Fail(const std::string& message);
  void Warn(const std::string& message);
  void Notice(const std::string& message);
  void NoEffect(const std::string& key_path, std::string_view reason);
  template <typename T>
  void Filled(const std::string& key_path, const T& value) {
    filled_.push_back(fmt::format("{} = {}", key_path, value));
  }
  void CannotFill(const std::string& key_path) { not_filled_.push_back(key_path); }

  bool ok() const { return status_.ok(); }
  // Moves warnings and notices into `config`, or returns the error.
  Status Finish(TrainingConfig& config);

 private:
  std::string origin_;
  Status status_ = Status::Ok();
  std::vector<std::string> warnings_;
  std::vector<std::string> notices_;
  std::vector<std::pair<std::string_view, std::vector<std::string>>> no_effect_;  // by reason
  std::vector<std::string> filled_;
  std::vector<std::string> not_filled_;
};

enum class UnknownKey : uint8_t { kError, kWarning };
// What "auto" means where the parser does not ask by IsAuto.
enum class AutoValue : uint8_t { kDefault, kCannotFill };

class ConfigSection {
 public:
  // Checks every key against KeysOf(path): unknown ones by `unknown`, those without effect for the
  // kind of their value (a negative count is refused), once and for all.
  ConfigSection(const nlohmann::json& object, std::string_view path, UnknownKey unknown,
                AutoValue auto_value, ParseLog& log);

  // Absent if the key is absent, null or "auto", or has a value of the wrong kind (then the log has
  // the error). "auto" is noted as not fillable under kCannotFill, so ask IsAuto first.
  std::optional<bool> Flag(std::string_view key);
  std::optional<uint64_t> Count(std::string_view key);
  std::optional<uint32_t> Count32(std::string_view key);
  std::optional<double> Number(std::string_view key);
  std::optional<double> NonNegative(std::string_view key);
  std::optional<std::string> Text(std::string_view key);
  const nlohmann::json* Object(std::string_view key);     // null if absent
  const nlohmann::json* Raw(std::string_view key) const;  // null if absent or null

  bool Has(std::string_view key) const { return Raw(key) != nullptr; }
  bool IsAuto(std::string_view key) const;
  std::string KeyPath(std::string_view key) const;
  // Records "<key path> is <value>, but <rest>".
  void Fail(std::string_view key, const std::string& rest);
  ParseLog& log() { return log_; }

 private:
  const nlohmann::json* Value(std::string_view key);  // null if absent, null or "auto"
  void CheckKey(const std::string& key, UnknownKey unknown);
  void CheckKind(const KeySpec& spec);

  const nlohmann::json& object_;
  std::string_view path_;
  AutoValue auto_value_;
  ParseLog& log_;
};

}  // namespace marea
