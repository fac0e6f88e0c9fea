#include "engine/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "engine/checkpoint/atomic_file.h"
#include "engine/checkpoint/safetensors_writer.h"

namespace marea {
namespace {

namespace fs = std::filesystem;

Status FolderError(const char* what, const std::string& folder, const std::error_code& error) {
  return Status::Io(fmt::format("cannot {} {}", what, folder), error.value());
}

// A folder that is removed, with what is in it, unless it was given its name.
class PartialFolder {
 public:
  explicit PartialFolder(std::string path) : path_(std::move(path)) {}
  ~PartialFolder() {
    std::error_code ignored;  // nothing can be done about it here; the next writer clears it too
    fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  Status Create() const {
    std::error_code error;
    fs::remove_all(path_, error);  // left by a process that died
    if (!error) fs::create_directories(path_, error);
    return error ? FolderError("create folder", path_, error) : Status::Ok();
  }

  // Gives the folder the name `target`. A folder that had it takes this one's name, and goes.
  Status Publish(const std::string& target) const {
    if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) {
      return Status::Ok();
    }
    if (errno == EEXIST &&
        renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      return Status::Ok();
    }
    if (errno != EINVAL && errno != ENOSYS) {
      return Status::Io(fmt::format("cannot rename {} to {}", path_, target), errno);
    }
    return PublishInTwoSteps(target);
  }

 private:
  // For file systems that cannot exchange names. Between the two renames the old folder stands
  // under `.old`, whole.
  Status PublishInTwoSteps(const std::string& target) const {
    const std::string old = target + ".old";
    std::error_code error;
    fs::remove_all(old, error);
    if (!error && fs::exists(target, error)) fs::rename(target, old, error);
    if (error) return FolderError("move away", target, error);
    fs::rename(path_, target, error);
    if (error) {
      std::error_code ignored;
      fs::rename(old, target, ignored);
      return FolderError("rename to", target, error);
    }
    fs::remove_all(old, error);
    return Status::Ok();
  }

  std::string path_;
};

Status WriteWeights(const std::string& path, const ModelShape& shape, Precision precision,
                    const TensorSource& source) {
  const uint64_t element_bytes = WeightBytes(precision);
  const TensorType type = precision == Precision::kBf16 ? TensorType::kBf16 : TensorType::kFp32;
  std::vector<TensorSpec> specs;
  for (const GroupShape& group : shape.groups) {
    for (const TensorShape& tensor : group.tensors)
      specs.push_back({tensor.name, type, tensor.dims});
  }
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                         SafetensorsWriter::Create(path, specs));
  const uint64_t piece_elements = kCheckpointPieceBytes / element_bytes;
  std::vector<std::byte> piece(kCheckpointPieceBytes);
  for (uint32_t index = 0; index < shape.groups.size(); ++index) {
    for (const TensorShape& tensor : shape.groups[index].tensors) {
      for (uint64_t at = 0; at < tensor.elements; at += piece_elements) {
        const uint64_t count = std::min(piece_elements, tensor.elements - at);
        const std::span<std::byte> out(piece.data(), count * element_bytes);
        MAREA_RETURN_IF_ERROR(source(index, tensor, at, out));
        MAREA_RETURN_IF_ERROR(writer->Append(out));
      }
    }
  }
  return writer->Finish();
}

}  // namespace

Status WriteCheckpoint(const std::string& folder, const std::string& config_text,
                       const ModelShape& shape, Precision precision, const TensorSource& source) {
  std::string target = folder;
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  const PartialFolder partial(target + ".partial");
  MAREA_RETURN_IF_ERROR(partial.Create());
  const std::string path = target + ".partial";
  MAREA_RETURN_IF_ERROR(WriteFileAtomically(path + "/config.json",
                                            std::as_bytes(std::span<const char>(config_text))));
  MAREA_RETURN_IF_ERROR(WriteWeights(path + "/model.safetensors", shape, precision, source));
  MAREA_RETURN_IF_ERROR(partial.Publish(target));
  const std::string parent = fs::path(target).parent_path().native();
  return SyncFolder(parent.empty() ? "." : parent);
}

}  // namespace marea
