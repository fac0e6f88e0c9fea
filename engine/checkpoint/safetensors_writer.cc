#include "engine/checkpoint/safetensors_writer.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "io/units.h"

namespace marea {

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<AtomicFile> file, uint64_t file_bytes)
    : file_(std::move(file)), file_bytes_(file_bytes) {}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<TensorSpec>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t at = 0;
  std::unordered_set<std::string> names;
  for (const TensorSpec& tensor : tensors) {
    MAREA_CHECK(names.insert(tensor.name).second, "two tensors of one name");
    uint64_t bytes = TensorTypeBytes(tensor.type);
    for (const int64_t dim : tensor.dims) bytes *= static_cast<uint64_t>(dim);
    header[tensor.name] = {{"dtype", TensorTypeName(tensor.type)},
                           {"shape", tensor.dims},
                           {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  // Spaces at the end bring the first tensor to a multiple of 8, as the format's own writer does.
  text.append(RoundUp(text.size(), 8) - text.size(), ' ');
  const uint64_t length = text.size();
  const uint64_t file_bytes = sizeof(length) + length + at;
  MAREA_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, file_bytes));
  MAREA_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(&length, 1))));
  MAREA_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(text))));
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(std::move(file), file_bytes));
}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  MAREA_CHECK(bytes.size() <= file_bytes_ - file_->bytes_written(), "more bytes than announced");
  return file_->Write(bytes);
}

Status SafetensorsWriter::Finish() {
  MAREA_CHECK(file_->bytes_written() == file_bytes_, "fewer bytes than announced");
  return file_->Commit();
}

}  // namespace marea
