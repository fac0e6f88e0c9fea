#include "engine/checkpoint/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "engine/config/json_text.h"
#include "io/units.h"

namespace marea {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kConfigBytesMax = 16 * kMiB;
constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool IsPickle(const std::string& name) {
  return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") ||
         name.ends_with(".ckpt") || name.ends_with(".gguf") || name.ends_with(".h5") ||
         name.ends_with(".msgpack");
}

// Names of a folder, sorted. A link to nowhere is listed: using it is an error, not its absence.
Result<std::vector<std::string>> List(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().native());
  }
  if (error) {
    return Status::Errno(ErrorCode::kInvalidArgument, fmt::format("cannot read folder {}", folder),
                         error.value());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Weights beside the one file that is loaded, or instead of it.
Status FindWeights(const std::string& folder, const std::vector<std::string>& names,
                   ModelFolder& model) {
  const auto has = [&](const char* name) {
    return std::binary_search(names.begin(), names.end(), name);
  };
  std::vector<std::string> others;
  for (const std::string& name : names) {
    if (name != kWeights && name.ends_with(".safetensors")) others.push_back(name);
  }
  if (has(kWeights)) {
    model.weights_path = folder + "/" + kWeights;
    if (!others.empty() || has(kIndex)) {
      model.notices.push_back(fmt::format("{}: only {} is loaded, not {} beside it", folder,
                                          kWeights, others.empty() ? kIndex : others.front()));
    }
    return Status::Ok();
  }
  if (has(kIndex)) {
    return Status::InvalidArgument(
        fmt::format("{} has weights in several files ({}), which is not supported yet; save the "
                    "model as one {} file",
                    folder, kIndex, kWeights));
  }
  if (others.empty()) {
    std::copy_if(names.begin(), names.end(), std::back_inserter(others), IsPickle);
  }
  // training_args.bin and the like are no weights.
  others.erase(std::remove_if(others.begin(), others.end(),
                              [](const std::string& name) {
                                return name == "training_args.bin" || name == "optimizer.pt" ||
                                       name == "scheduler.pt" || name == "rng_state.pth";
                              }),
               others.end());
  if (others.empty()) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("{} has no {}, but {}, which cannot be loaded; save the model as {}, or pass its "
                  "{} alone to start from random values",
                  folder, kWeights, others.front(), kWeights, kConfig));
}

}  // namespace

Result<ModelFolder> OpenModelFolder(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return Status::Errno(ErrorCode::kInvalidArgument, fmt::format("cannot open model {}", path),
                         error.value());
  }
  if (!fs::exists(status)) {
    return Status::InvalidArgument(
        fmt::format("model {} does not exist; name a Hugging Face folder or a {}", path, kConfig));
  }
  ModelFolder model;
  if (!fs::is_directory(status)) {
    model.config_path = path;
    MAREA_ASSIGN_OR_RETURN(model.config_text, ReadSmallFile(path, kConfigBytesMax));
    const fs::path beside = fs::path(path).parent_path() / kWeights;
    if (fs::exists(beside, error)) {
      model.notices.push_back(fmt::format(
          "{} alone means random initial values; pass its folder to load {}", path, kWeights));
    }
    return model;
  }
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  MAREA_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(folder));
  if (!std::binary_search(names.begin(), names.end(), kConfig)) {
    return Status::InvalidArgument(
        fmt::format("model folder {} has no {}; name a Hugging Face folder", folder, kConfig));
  }
  model.config_path = folder + "/" + kConfig;
  MAREA_ASSIGN_OR_RETURN(model.config_text, ReadSmallFile(model.config_path, kConfigBytesMax));
  MAREA_RETURN_IF_ERROR(FindWeights(folder, names, model));
  return model;
}

}  // namespace marea
