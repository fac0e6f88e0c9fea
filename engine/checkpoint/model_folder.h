// Finds a model on disk: what `--model` names.
//
// A Hugging Face folder (config.json, and model.safetensors if it has weights; links are followed,
// as in a cache snapshot), or a config.json alone, which means random initial values. Weights that
// are there but cannot be loaded are an error, never a silent start from random values.
//
// Thread rule: pure function of the file system.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/status.h"

namespace marea {

struct ModelFolder {
  std::string config_path;
  std::string config_text;                  // byte for byte
  std::optional<std::string> weights_path;  // model.safetensors; absent: initialise at random
  std::vector<std::string> notices;
};

// InvalidArgument: nothing there, no config.json, an unreadable or oversized one, or weights in a
// form that is not supported (several files, pickle), with the remedy. Blocks.
Result<ModelFolder> OpenModelFolder(const std::string& path);

}  // namespace marea
