// A Hugging Face config.json, read and checked: the architecture and its sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/status.h"

namespace marea {

enum class Architecture : uint8_t { kGpt2, kLlama };

// Llama-3's frequency scaling ("rope_type": "llama3").
struct RopeScaling {
  double factor;
  double low_frequency_factor;
  double high_frequency_factor;
  uint32_t original_max_positions;
};

struct ModelConfig {
  Architecture architecture;
  uint32_t vocabulary;
  uint32_t hidden;
  uint32_t intermediate;
  uint32_t layers;
  uint32_t heads;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t max_positions;
  double norm_epsilon;
  double init_std;
  bool tied_embeddings;
  double rope_theta = 10000.0;              // Llama
  std::optional<RopeScaling> rope_scaling;  // Llama
  bool attention_bias = false;              // Llama
  bool mlp_bias = false;                    // Llama
  // Llama: this token's embedding starts as zeros and gets no gradient from its use as an input.
  std::optional<uint32_t> padding_token;
  std::vector<std::string> notices;  // what the file asks for and is not done here, for the user
};

// Parses the text of a config.json; `origin` is the path that messages name. InvalidArgument for
// malformed JSON, an unsupported architecture or key value (named, with what is supported), and
// sizes that cannot work (heads not dividing hidden, kv heads not dividing heads, zeros).
Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& origin);

}  // namespace marea
