// Small models whose values say where they stand.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/checkpoint/safetensors_writer.h"
#include "engine/model/model_shape.h"

namespace marea {

inline constexpr const char* kTinyGpt2 =
    R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128,
        "vocab_size": 257})";
inline constexpr const char* kTinyLlama =
    R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 176,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 256, "max_position_embeddings": 128, "tie_word_embeddings": false})";
inline constexpr const char* kTinyLlamaTied =
    R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 176,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 256, "max_position_embeddings": 128, "tie_word_embeddings": true})";

inline ModelShape ShapeOf(const std::string& config) {
  return MakeModelShape(ParseModelConfig(config, "config.json").value(), {1, 8}, Precision::kFp32,
                        1);
}

// A value for each (tensor, element), different for neighbours and between tensors.
inline float ValueOf(const std::string& name, uint64_t element) {
  uint64_t hash = 1469598103934665603u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return static_cast<float>((hash + element * 7919) % 4096) / 64.0f - 32.0f;
}

// A tensor of a file: its name there, the name whose values it holds, its dims.
struct FileTensor {
  std::string name;
  std::string values_of;
  std::vector<int64_t> dims;
};

inline std::vector<FileTensor> TensorsOf(const ModelShape& shape) {
  std::vector<FileTensor> tensors;
  for (const GroupShape& group : shape.groups) {
    for (const TensorShape& tensor : group.tensors) {
      tensors.push_back({tensor.name, tensor.name, tensor.dims});
    }
  }
  return tensors;
}

inline Status WriteTensors(const std::string& path, const std::vector<FileTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const FileTensor& tensor : tensors) {
    specs.push_back({tensor.name, TensorType::kFp32, tensor.dims});
  }
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                         SafetensorsWriter::Create(path, specs));
  for (const FileTensor& tensor : tensors) {
    uint64_t elements = 1;
    for (const int64_t dim : tensor.dims) elements *= static_cast<uint64_t>(dim);
    std::vector<float> values(elements);
    for (uint64_t i = 0; i < elements; ++i) values[i] = ValueOf(tensor.values_of, i);
    MAREA_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(values))));
  }
  return writer->Finish();
}

}  // namespace marea
