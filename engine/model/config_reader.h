// Typed reads of a config.json's keys, with messages that name file, key and value.
//
// The first failure is kept and every later read returns its default, so that a parser reads all
// keys in a row and asks `status()` once. Owner: the parser. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "io/status.h"

namespace marea {

class ConfigReader {
 public:
  // `prefix` is put before key names in messages ("rope_parameters.").
  ConfigReader(const nlohmann::json& object, std::string origin, std::string prefix = {})
      : object_(object), origin_(std::move(origin)), prefix_(std::move(prefix)) {}

  // The first of `names` that is present and not null is read; absent means `fallback`.
  uint32_t Count(std::initializer_list<const char*> names, uint32_t fallback, uint32_t limit);
  std::optional<uint32_t> OptionalCount(std::initializer_list<const char*> names, uint32_t limit);
  // A token id: as OptionalCount, but 0 is a value like any other.
  std::optional<uint32_t> OptionalToken(const char* name, uint32_t vocabulary);
  std::optional<double> OptionalNumber(const char* name);
  // A finite number > 0.
  double Positive(const char* name, double fallback);
  bool Flag(const char* name, bool fallback);
  std::string Text(const char* name, const std::string& fallback);

  // Fails unless the key is absent, null or equal to `needed`.
  void RequireFlag(const char* name, bool fallback, bool needed);
  // Records "<origin>: <prefix><name> is <value>, but <rest>".
  void Fail(const std::string& name, const std::string& rest);

  const Status& status() const { return status_; }

 private:
  const nlohmann::json* Find(const char* name) const;
  std::string ValueText(const std::string& name) const;

  const nlohmann::json& object_;
  std::string origin_;
  std::string prefix_;
  Status status_ = Status::Ok();
};

}  // namespace marea
