// Parses members of a DeepSpeed file and expects them to be taken or refused.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/config/deepspeed_config.h"

namespace marea {

inline Result<TrainingConfig> Parse(const std::string& text,
                                    const ConfigOverrides& overrides = {}) {
  return ParseTrainingConfig(text, "ds.json", overrides);
}

// `members` inside an object that is complete otherwise.
inline TrainingConfig Accept(const std::string& members, const ConfigOverrides& overrides = {}) {
  const Result<TrainingConfig> config =
      Parse("{\"train_micro_batch_size_per_gpu\": 2" +
                (members.empty() ? std::string() : ", " + members) + "}",
            overrides);
  EXPECT_TRUE(config.ok()) << members << " -> " << config.status().message();
  return config.ok() ? config.value() : TrainingConfig();
}

inline std::string Refuse(const std::string& members, const ConfigOverrides& overrides = {}) {
  const Result<TrainingConfig> config =
      Parse("{\"train_micro_batch_size_per_gpu\": 2, " + members + "}", overrides);
  EXPECT_FALSE(config.ok()) << members;
  if (config.ok()) return "accepted";
  EXPECT_EQ(config.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(config.status().message().rfind("ds.json: ", 0), 0u) << config.status().message();
  EXPECT_EQ(config.status().message().find('\n'), std::string::npos);
  return config.status().message();
}

inline std::string Zero(const std::string& members) {
  return "\"zero_optimization\": {" + members + "}";
}

inline bool Mentions(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

#define EXPECT_HAS(message, text)                                        \
  do {                                                                   \
    const std::string has_message = (message);                           \
    EXPECT_NE(has_message.find(text), std::string::npos) << has_message; \
  } while (false)

}  // namespace marea
