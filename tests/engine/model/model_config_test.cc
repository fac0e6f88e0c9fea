#include "engine/model/model_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace marea {
namespace {

ModelConfig Parse(const std::string& text) {
  Result<ModelConfig> config = ParseModelConfig(text, "dir/config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? config.value() : ModelConfig{};
}

TEST(ModelConfigTest, Gpt2DefaultsAreTransformers) {
  const ModelConfig config = Parse(R"({"model_type":"gpt2"})");
  EXPECT_EQ(config.architecture, Architecture::kGpt2);
  EXPECT_EQ(config.vocabulary, 50257u);
  EXPECT_EQ(config.hidden, 768u);
  EXPECT_EQ(config.intermediate, 3072u);
  EXPECT_EQ(config.layers, 12u);
  EXPECT_EQ(config.heads, 12u);
  EXPECT_EQ(config.kv_heads, 12u);
  EXPECT_EQ(config.head_dim, 64u);
  EXPECT_EQ(config.max_positions, 1024u);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  EXPECT_EQ(config.init_std, 0.02);
  EXPECT_TRUE(config.tied_embeddings);
}

TEST(ModelConfigTest, LlamaDefaultsAreTransformers) {
  const ModelConfig config = Parse(R"({"model_type":"llama"})");
  EXPECT_EQ(config.vocabulary, 32000u);
  EXPECT_EQ(config.hidden, 4096u);
  EXPECT_EQ(config.intermediate, 11008u);
  EXPECT_EQ(config.layers, 32u);
  EXPECT_EQ(config.heads, 32u);
  EXPECT_EQ(config.kv_heads, 32u);
  EXPECT_EQ(config.head_dim, 128u);
  EXPECT_EQ(config.max_positions, 2048u);
  EXPECT_EQ(config.norm_epsilon, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.rope_scaling.has_value());
  EXPECT_FALSE(config.padding_token.has_value());
  EXPECT_TRUE(config.notices.empty());
}

TEST(ModelConfigTest, NullMeansAbsent) {
  EXPECT_EQ(Parse(R"({"model_type":"gpt2","n_embd":48,"n_inner":null})").intermediate, 192u);
  const ModelConfig llama = Parse(
      R"({"model_type":"llama","head_dim":null,"num_key_value_heads":null,"rope_scaling":null,
          "pad_token_id":null})");
  EXPECT_EQ(llama.head_dim, 128u);
  EXPECT_EQ(llama.kv_heads, 32u);
}

TEST(ModelConfigTest, ClassNameStandsInForModelType) {
  EXPECT_EQ(Parse(R"({"architectures":["LlamaForCausalLM"]})").architecture, Architecture::kLlama);
  EXPECT_EQ(Parse(R"({"architectures":["GPT2LMHeadModel"]})").architecture, Architecture::kGpt2);
}

TEST(ModelConfigTest, RopeScalingInBothForms) {
  const std::string rope =
      R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
         "original_max_position_embeddings":8192)";
  const std::string old_form =
      R"({"model_type":"llama","max_position_embeddings":131072,"rope_theta":500000.0,
          "rope_scaling":{)" +
      rope + "}}";
  const std::string new_form =
      R"({"model_type":"llama","max_position_embeddings":131072,
          "rope_parameters":{"rope_theta":500000.0,)" +
      rope + "}}";
  for (const std::string& text : {old_form, new_form}) {
    const ModelConfig config = Parse(text);
    EXPECT_EQ(config.rope_theta, 500000.0);
    ASSERT_TRUE(config.rope_scaling.has_value());
    EXPECT_EQ(config.rope_scaling->factor, 8.0);
    EXPECT_EQ(config.rope_scaling->low_frequency_factor, 1.0);
    EXPECT_EQ(config.rope_scaling->high_frequency_factor, 4.0);
    EXPECT_EQ(config.rope_scaling->original_max_positions, 8192u);
  }
  // "type" is the key's older name.
  EXPECT_FALSE(Parse(R"({"model_type":"llama","rope_scaling":{"type":"default"}})").rope_scaling);
}

TEST(ModelConfigTest, DropoutIsNotedNotObeyed) {
  const ModelConfig asked = Parse(R"({"model_type":"gpt2","resid_pdrop":0.2,"embd_pdrop":0,
                                      "attn_pdrop":0.0})");
  ASSERT_EQ(asked.notices.size(), 1u);
  EXPECT_NE(asked.notices[0].find("resid_pdrop 0.2"), std::string::npos);
  EXPECT_EQ(asked.notices[0].find("embd_pdrop"), std::string::npos);
  // Absent keys have Transformers' default of 0.1.
  EXPECT_EQ(Parse(R"({"model_type":"gpt2"})").notices.size(), 1u);
  EXPECT_TRUE(Parse(R"({"model_type":"gpt2","resid_pdrop":0,"embd_pdrop":0,"attn_pdrop":0})")
                  .notices.empty());
  EXPECT_EQ(Parse(R"({"model_type":"llama","attention_dropout":0.1})").notices.size(), 1u);
}

TEST(ModelConfigTest, PaddingToken) {
  EXPECT_EQ(Parse(R"({"model_type":"llama","pad_token_id":0})").padding_token, 0u);
  EXPECT_FALSE(Parse(R"({"model_type":"llama","pad_token_id":-1})").padding_token.has_value());
  // GPT-2's embedding does not know its padding token.
  EXPECT_FALSE(Parse(R"({"model_type":"gpt2","pad_token_id":5})").padding_token.has_value());
}

struct Refusal {
  const char* text;
  std::vector<const char*> words;  // all in the message, beside the file's name
};

TEST(ModelConfigTest, RefusesWithFileKeyAndValue) {
  const Refusal refusals[] = {
      {"", {"JSON"}},
      {"[1]", {"JSON"}},
      {R"({"model_type":"gpt2")", {"JSON"}},
      {"\xff\xfe{", {"JSON"}},
      {"{}", {"model_type", "gpt2", "llama"}},
      {R"({"model_type":"mixtral"})", {"model_type", "mixtral", "llama"}},
      {R"({"model_type":7})", {"model_type"}},
      {R"({"architectures":["OPTForCausalLM"]})", {"OPTForCausalLM", "LlamaForCausalLM"}},
      {R"({"model_type":"gpt2","activation_function":"relu"})",
       {"activation_function", "relu", "gelu_new"}},
      {R"({"model_type":"gpt2","n_embd":0})", {"n_embd", "0"}},
      {R"({"model_type":"gpt2","n_embd":-768})", {"n_embd", "-768"}},
      {R"({"model_type":"gpt2","n_embd":768.5})", {"n_embd", "768.5"}},
      {R"({"model_type":"gpt2","n_embd":"768"})", {"n_embd", "\"768\""}},
      {R"({"model_type":"gpt2","n_embd":18446744073709551615})", {"n_embd"}},
      {R"({"model_type":"gpt2","n_layer":0})", {"n_layer", "0"}},
      {R"({"model_type":"gpt2","vocab_size":4294967296})", {"vocab_size", "4294967296"}},
      {R"({"model_type":"gpt2","n_head":7})", {"n_head", "7", "768"}},
      {R"({"model_type":"gpt2","layer_norm_epsilon":0})", {"layer_norm_epsilon"}},
      {R"({"model_type":"gpt2","initializer_range":3})", {"initializer_range", "3"}},
      {R"({"model_type":"gpt2","scale_attn_weights":false})", {"scale_attn_weights", "false"}},
      {R"({"model_type":"gpt2","scale_attn_by_inverse_layer_idx":true})",
       {"scale_attn_by_inverse_layer_idx"}},
      {R"({"model_type":"gpt2","add_cross_attention":true})", {"add_cross_attention"}},
      {R"({"model_type":"gpt2","tie_word_embeddings":"yes"})", {"tie_word_embeddings", "yes"}},
      {R"({"model_type":"gpt2","quantization_config":{"bits":4}})", {"quantization_config"}},
      {R"({"model_type":"llama","hidden_act":"gelu"})", {"hidden_act", "gelu", "silu"}},
      {R"({"model_type":"llama","num_attention_heads":33})", {"num_attention_heads", "33", "4096"}},
      {R"({"model_type":"llama","num_key_value_heads":5})", {"num_key_value_heads", "5", "32"}},
      {R"({"model_type":"llama","num_key_value_heads":64})", {"num_key_value_heads", "64"}},
      {R"({"model_type":"llama","head_dim":63})", {"head_dim", "63", "even"}},
      {R"({"model_type":"llama","hidden_size":96})", {"head_dim", "absent", "3"}},
      {R"({"model_type":"llama","rope_scaling":{"rope_type":"yarn","factor":2}})",
       {"rope_scaling.rope_type", "yarn", "llama3"}},
      {R"({"model_type":"llama","rope_scaling":{"type":"linear","factor":2}})",
       {"rope_scaling.type", "linear"}},
      {R"({"model_type":"llama","rope_parameters":{"rope_type":"llama3","low_freq_factor":1,
           "high_freq_factor":4}})",
       {"rope_parameters.factor", "absent"}},
      {R"({"model_type":"llama","rope_parameters":{"rope_type":"llama3","factor":8,
           "low_freq_factor":4,"high_freq_factor":4}})",
       {"rope_parameters.high_freq_factor", "4"}},
      {R"({"model_type":"llama","rope_scaling":"llama3"})", {"rope_scaling", "llama3"}},
      {R"({"model_type":"llama","rope_theta":0})", {"rope_theta", "0"}},
      {R"({"model_type":"llama","partial_rotary_factor":0.5})", {"partial_rotary_factor", "0.5"}},
      {R"({"model_type":"llama","pad_token_id":32000})", {"pad_token_id", "32000"}},
  };
  for (const Refusal& refusal : refusals) {
    const Result<ModelConfig> config = ParseModelConfig(refusal.text, "dir/config.json");
    ASSERT_FALSE(config.ok()) << refusal.text;
    EXPECT_EQ(config.status().code(), ErrorCode::kInvalidArgument);
    const std::string& message = config.status().message();
    EXPECT_NE(message.find("dir/config.json"), std::string::npos) << message;
    for (const char* word : refusal.words) {
      EXPECT_NE(message.find(word), std::string::npos) << message << " lacks " << word;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 320u) << message;
  }
}

// Files a hundred levels deep, or cut off anywhere, are refused and nothing worse.
TEST(ModelConfigTest, SurvivesAnyPrefix) {
  const std::string text =
      R"({"model_type":"llama","rope_parameters":{"rope_type":"llama3","factor":8,"low_freq_factor":1,
          "high_freq_factor":4},"vocab_size":300})";
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(ParseModelConfig(text.substr(0, length), "config.json").ok()) << length;
  }
  EXPECT_TRUE(ParseModelConfig(text, "config.json").ok());
  EXPECT_FALSE(ParseModelConfig(std::string(10000, '['), "config.json").ok());
}

}  // namespace
}  // namespace marea
