#include "engine/checkpoint/model_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "engine/checkpoint/name_match.h"
#include "io/units.h"

namespace marea {
namespace {

constexpr const char* kTiedName = "lm_head.weight";

// Whether two tensors of the same dims hold the same values, bit for bit.
Result<bool> SameValues(const SafetensorsFile& file, const TensorEntry& a, const TensorEntry& b) {
  constexpr uint64_t kPiece = 256 * kKiB;  // elements
  std::vector<float> left(std::min(kPiece, a.elements)), right(left.size());
  for (uint64_t at = 0; at < a.elements; at += kPiece) {
    const uint64_t count = std::min(kPiece, a.elements - at);
    MAREA_RETURN_IF_ERROR(file.ReadFloats(a, at, count, left.data()));
    MAREA_RETURN_IF_ERROR(file.ReadFloats(b, at, count, right.data()));
    if (std::memcmp(left.data(), right.data(), count * sizeof(float)) != 0) return false;
  }
  return true;
}

// "a", or "a and 3 more".
std::string FirstOf(const std::vector<std::string>& names) {
  if (names.size() == 1) return names.front();
  return fmt::format("{} and {} more", names.front(), names.size() - 1);
}

// The embedding that a tied model's head uses.
const TensorShape& TiedTensor(const ModelShape& shape) {
  return shape.groups[shape.blocks.front().groups.front()].tensors.front();
}

}  // namespace

ModelWeights::ModelWeights(std::unique_ptr<SafetensorsFile> file) : file_(std::move(file)) {}

Result<std::unique_ptr<ModelWeights>> ModelWeights::Open(const std::string& path,
                                                         const ModelShape& shape) {
  MAREA_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  std::unique_ptr<ModelWeights> weights(new ModelWeights(std::move(file)));
  MAREA_RETURN_IF_ERROR(weights->Match(shape));
  MAREA_RETURN_IF_ERROR(weights->CheckTiedHead(shape));
  MAREA_RETURN_IF_ERROR(weights->CheckTensors(shape));
  return weights;
}

Status ModelWeights::Match(const ModelShape& shape) {
  std::unordered_set<std::string> model_names;
  for (const GroupShape& group : shape.groups) {
    for (const TensorShape& tensor : group.tensors) model_names.insert(tensor.name);
  }
  std::vector<std::string> file_names;
  for (const TensorEntry& entry : file_->tensors()) file_names.push_back(entry.name);
  const NameRule rule = FindNameRule(file_names, model_names);
  if (!rule.identity()) {
    notices_.push_back(fmt::format("{}: names are read {}{}", file_->path(),
                                   rule.strip.empty() ? "" : "without their prefix " + rule.strip,
                                   rule.add.empty() ? "" : " with " + rule.add + " before them"));
  }
  for (const TensorEntry& entry : file_->tensors()) {
    const std::string name = rule.ToModel(entry.name);
    if (model_names.contains(name)) {
      entries_.emplace(name, &entry);  // one file, one rule: names stay different
    } else if (shape.config.tied_embeddings && name == kTiedName) {
      tied_head_ = &entry;
    } else if (!IsIgnoredBuffer(name)) {
      unexpected_.push_back(entry.name);
    }
  }
  return Status::Ok();
}

Status ModelWeights::CheckTiedHead(const ModelShape& shape) {
  if (tied_head_ == nullptr) return Status::Ok();
  const TensorShape& embedding = TiedTensor(shape);
  const auto found = entries_.find(embedding.name);
  if (found == entries_.end()) {
    entries_.emplace(embedding.name, tied_head_);
    notices_.push_back(fmt::format("{}: {} is taken from {}, to which it is tied", file_->path(),
                                   embedding.name, kTiedName));
    return Status::Ok();
  }
  const TensorEntry& table = *found->second;
  bool same = tied_head_->dims == table.dims && tied_head_->type != TensorType::kOther &&
              table.type != TensorType::kOther;
  if (same) {
    MAREA_ASSIGN_OR_RETURN(same, SameValues(*file_, table, *tied_head_));
  }
  if (same) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("{}: {} differs from {}, but config.json ties them; set tie_word_embeddings to "
                  "false, or remove {}",
                  file_->path(), tied_head_->name, table.name, tied_head_->name));
}

Status ModelWeights::CheckNames(const std::vector<std::string>& missing) const {
  if (missing.empty() && unexpected_.empty()) return Status::Ok();
  for (const std::string& name : unexpected_) {
    for (const TensorEntry& entry : file_->tensors()) {
      if (SameButForPrefix(name, entry.name)) {
        return Status::InvalidArgument(
            fmt::format("{}: {} and {} name the same tensor; save the model without the prefix",
                        file_->path(), name, entry.name));
      }
    }
  }
  std::string message = fmt::format("{} does not fit config.json: ", file_->path());
  if (!missing.empty()) message += fmt::format("tensor {} missing", FirstOf(missing));
  if (!missing.empty() && !unexpected_.empty()) message += ", ";
  if (!unexpected_.empty()) {
    message += fmt::format("tensor {} not part of the model", FirstOf(unexpected_));
  }
  return Status::InvalidArgument(message + "; use the file that belongs to this config.json");
}

Status ModelWeights::CheckTensors(const ModelShape& shape) {
  std::vector<std::string> missing;
  for (const GroupShape& group : shape.groups) {
    for (const TensorShape& tensor : group.tensors) {
      if (!entries_.contains(tensor.name)) missing.push_back(tensor.name);
    }
  }
  MAREA_RETURN_IF_ERROR(CheckNames(missing));
  for (const GroupShape& group : shape.groups) {
    for (const TensorShape& tensor : group.tensors) {
      const TensorEntry& entry = *entries_.at(tensor.name);
      if (entry.dims != tensor.dims) {
        return Status::InvalidArgument(fmt::format(
            "{}: tensor {} is [{}], but config.json makes it [{}]; correct one of them",
            file_->path(), entry.name, fmt::join(entry.dims, ", "), fmt::join(tensor.dims, ", ")));
      }
      if (entry.type == TensorType::kOther) {
        return Status::InvalidArgument(
            fmt::format("{}: tensor {} has dtype {}; F32, BF16 and F16 can be loaded",
                        file_->path(), entry.name, entry.type_name));
      }
    }
  }
  return Status::Ok();
}

Status ModelWeights::Read(const TensorShape& tensor, uint64_t first, uint64_t count,
                          float* out) const {
  const auto found = entries_.find(tensor.name);
  MAREA_CHECK(found != entries_.end(), "a tensor of another model");
  return file_->ReadFloats(*found->second, first, count, out);
}

}  // namespace marea
