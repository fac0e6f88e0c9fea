#include "engine/model/model_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/model/config_reader.h"

namespace marea {
namespace {

// Far beyond any model, and small enough that no product of them overflows 64 bits.
constexpr uint32_t kHiddenMax = 1u << 20;
constexpr uint32_t kIntermediateMax = 1u << 24;
constexpr uint32_t kLayersMax = 1u << 14;
constexpr uint32_t kVocabularyMax = INT32_MAX;
constexpr uint32_t kPositionsMax = 1u << 28;

// Which architecture a file describes: "model_type" decides; files without it may say it by the
// class that they were saved from.
Result<Architecture> FindArchitecture(const nlohmann::json& object, const std::string& origin) {
  constexpr const char* kSupported =
      "supported are \"gpt2\" (GPT2LMHeadModel) and \"llama\" (LlamaForCausalLM)";
  const auto type = object.find("model_type");
  if (type != object.end() && type->is_string()) {
    if (*type == "gpt2") return Architecture::kGpt2;
    if (*type == "llama") return Architecture::kLlama;
    return Status::InvalidArgument(fmt::format(
        "{}: \"model_type\" is {}, but {}", origin,
        type->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), kSupported));
  }
  const auto classes = object.find("architectures");
  if (classes != object.end() && classes->is_array() && !classes->empty()) {
    if (classes->front() == "GPT2LMHeadModel") return Architecture::kGpt2;
    if (classes->front() == "LlamaForCausalLM") return Architecture::kLlama;
    return Status::InvalidArgument(fmt::format(
        "{}: \"architectures\" is {}, but {}", origin,
        classes->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), kSupported));
  }
  return Status::InvalidArgument(
      fmt::format("{}: \"model_type\" is missing or no text, and {}", origin, kSupported));
}

// Training here is without dropout: a file that asks for it is obeyed in all else, and the user
// told.
void NoteDropout(ConfigReader& reader, std::initializer_list<std::pair<const char*, double>> keys,
                 ModelConfig& config) {
  std::string asked;
  for (const auto& [name, fallback] : keys) {
    const double value = reader.OptionalNumber(name).value_or(fallback);
    if (value == 0) continue;
    asked += fmt::format("{}{} {}", asked.empty() ? "" : ", ", name, value);
  }
  if (asked.empty()) return;
  config.notices.push_back("dropout is not applied: the model's configuration asks for " + asked);
}

void ReadGpt2(ConfigReader& reader, ModelConfig& config) {
  config.vocabulary = reader.Count({"vocab_size"}, 50257, kVocabularyMax);
  config.hidden = reader.Count({"n_embd", "hidden_size"}, 768, kHiddenMax);
  config.layers = reader.Count({"n_layer", "num_hidden_layers"}, 12, kLayersMax);
  config.heads = reader.Count({"n_head", "num_attention_heads"}, 12, kHiddenMax);
  config.kv_heads = config.heads;
  config.max_positions =
      reader.Count({"n_positions", "max_position_embeddings"}, 1024, kPositionsMax);
  config.intermediate = reader.Count({"n_inner"}, 4 * config.hidden, kIntermediateMax);
  config.norm_epsilon = reader.Positive("layer_norm_epsilon", 1e-5);
  config.init_std = reader.Positive("initializer_range", 0.02);
  config.tied_embeddings = reader.Flag("tie_word_embeddings", true);

  const std::string activation = reader.Text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    reader.Fail("activation_function",
                "supported are \"gelu_new\" and \"gelu_pytorch_tanh\" (the tanh form of GELU)");
  }
  reader.RequireFlag("scale_attn_weights", true, true);
  reader.RequireFlag("scale_attn_by_inverse_layer_idx", false, false);
  reader.RequireFlag("add_cross_attention", false, false);
  if (reader.Flag("reorder_and_upcast_attn", false)) {
    config.notices.push_back(
        "reorder_and_upcast_attn has no effect: attention scores are always summed in fp32");
  }
  if (config.hidden % config.heads != 0) {
    reader.Fail("n_head", fmt::format("it must divide \"n_embd\", which is {}", config.hidden));
  }
  config.head_dim = config.hidden / config.heads;
  NoteDropout(reader, {{"resid_pdrop", 0.1}, {"embd_pdrop", 0.1}, {"attn_pdrop", 0.1}}, config);
}

void ReadRopeScaling(ConfigReader& reader, const nlohmann::json& object, ModelConfig& config) {
  RopeScaling scaling;
  scaling.factor = reader.Positive("factor", 0);
  scaling.low_frequency_factor = reader.Positive("low_freq_factor", 0);
  scaling.high_frequency_factor = reader.Positive("high_freq_factor", 0);
  scaling.original_max_positions =
      reader.Count({"original_max_position_embeddings"}, config.max_positions, kPositionsMax);
  if (object.contains("factor") && scaling.factor < 1)
    reader.Fail("factor", "it must be at least 1");
  if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
    reader.Fail("high_freq_factor",
                fmt::format("it must be greater than low_freq_factor, which is {}",
                            scaling.low_frequency_factor));
  }
  config.rope_scaling = scaling;
}

// Files of older Transformers hold "rope_theta" and "rope_scaling"; newer ones hold both in
// "rope_parameters". Where both forms stand in one file, "rope_scaling" wins, as in Transformers.
Status ReadRope(ConfigReader& reader, const nlohmann::json& object, const std::string& origin,
                ModelConfig& config) {
  config.rope_theta = reader.Positive("rope_theta", 10000.0);
  if (reader.OptionalNumber("partial_rotary_factor").value_or(1.0) != 1.0) {
    reader.Fail("partial_rotary_factor", "only 1 (the whole head) is supported");
  }
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) continue;
    if (!found->is_object()) {
      reader.Fail(name, "it must be an object or null");
      return reader.status();
    }
    if (found->empty()) continue;
    ConfigReader rope(*found, origin, std::string(name) + ".");
    config.rope_theta = rope.Positive("rope_theta", config.rope_theta);
    if (rope.OptionalNumber("partial_rotary_factor").value_or(1.0) != 1.0) {
      rope.Fail("partial_rotary_factor", "only 1 (the whole head) is supported");
    }
    const char* key = found->contains("rope_type") ? "rope_type" : "type";
    const std::string type = rope.Text(key, "default");
    if (type == "llama3") {
      ReadRopeScaling(rope, *found, config);
    } else if (type != "default") {
      rope.Fail(key, "supported are \"default\" and \"llama3\"");
    }
    return rope.status();
  }
  return Status::Ok();
}

Status ReadLlama(ConfigReader& reader, const nlohmann::json& object, const std::string& origin,
                 ModelConfig& config) {
  config.vocabulary = reader.Count({"vocab_size"}, 32000, kVocabularyMax);
  config.hidden = reader.Count({"hidden_size"}, 4096, kHiddenMax);
  config.intermediate = reader.Count({"intermediate_size"}, 11008, kIntermediateMax);
  config.layers = reader.Count({"num_hidden_layers"}, 32, kLayersMax);
  config.heads = reader.Count({"num_attention_heads"}, 32, kHiddenMax);
  config.kv_heads = reader.Count({"num_key_value_heads"}, config.heads, kHiddenMax);
  config.max_positions = reader.Count({"max_position_embeddings"}, 2048, kPositionsMax);
  config.norm_epsilon = reader.Positive("rms_norm_eps", 1e-6);
  config.init_std = reader.Positive("initializer_range", 0.02);
  config.tied_embeddings = reader.Flag("tie_word_embeddings", false);
  config.attention_bias = reader.Flag("attention_bias", false);
  config.mlp_bias = reader.Flag("mlp_bias", false);
  config.padding_token = reader.OptionalToken("pad_token_id", config.vocabulary);
  const std::string activation = reader.Text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    reader.Fail("hidden_act", "supported is \"silu\"");
  }
  if (config.hidden % config.heads != 0) {
    reader.Fail("num_attention_heads",
                fmt::format("it must divide \"hidden_size\", which is {}", config.hidden));
  }
  if (config.heads % config.kv_heads != 0) {
    reader.Fail("num_key_value_heads",
                fmt::format("it must divide \"num_attention_heads\", which is {}", config.heads));
  }
  config.head_dim = reader.Count({"head_dim"}, config.hidden / config.heads, kHiddenMax);
  // RoPE turns pairs: the first half of a head against the second.
  if (config.head_dim % 2 != 0) {
    reader.Fail("head_dim",
                fmt::format("RoPE needs heads of an even size and this one is {} "
                            "(hidden_size / num_attention_heads where head_dim is absent)",
                            config.head_dim));
  }
  if (uint64_t{config.heads} * config.head_dim > kIntermediateMax) {
    reader.Fail("head_dim",
                fmt::format("all heads together may have at most {} elements", kIntermediateMax));
  }
  NoteDropout(reader, {{"attention_dropout", 0.0}}, config);
  MAREA_RETURN_IF_ERROR(reader.status());
  return ReadRope(reader, object, origin, config);
}

}  // namespace

Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& origin) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object()) {
    return Status::InvalidArgument(
        fmt::format("{}: this is not a JSON object; expected a Hugging Face config.json", origin));
  }
  MAREA_ASSIGN_OR_RETURN(const Architecture architecture, FindArchitecture(object, origin));
  ConfigReader reader(object, origin);
  if (object.contains("quantization_config") && !object["quantization_config"].is_null()) {
    reader.Fail("quantization_config",
                "quantized weights cannot be trained; use the unquantized model");
  }
  ModelConfig config{};
  config.architecture = architecture;
  if (architecture == Architecture::kGpt2) {
    ReadGpt2(reader, config);
  } else {
    MAREA_RETURN_IF_ERROR(ReadLlama(reader, object, origin, config));
  }
  MAREA_RETURN_IF_ERROR(reader.status());
  if (config.init_std > 1) {
    reader.Fail("initializer_range", "it must be at most 1");
    return reader.status();
  }
  return config;
}

}  // namespace marea
