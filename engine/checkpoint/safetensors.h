// The safetensors format: a little-endian uint64 header length, a JSON header, then the tensors'
// bytes, back to back and fully covered by the header's offsets.
//
// The reader trusts nothing: lengths, offsets, shapes and types are checked against the file before
// a byte of data is used, so a truncated, overlapping or foreign file is one sentence. Data is read
// by pread, never mapped: a file that shrinks later is an error, not a signal, and reading a large
// model does not grow the process.
//
// Owner: the caller. Thread rule: after Open, const calls from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/status.h"

namespace marea {

enum class TensorType : uint8_t { kFp32, kBf16, kFp16, kOther };

// "F32", "BF16", "F16".
const char* TensorTypeName(TensorType type);
uint64_t TensorTypeBytes(TensorType type);  // REQUIRES: not kOther

struct TensorEntry {
  std::string name;
  TensorType type;
  std::string type_name;  // as in the file: "I64"
  std::vector<int64_t> dims;
  uint64_t elements;
  uint64_t offset;  // of the first byte, from the start of the file
  uint64_t bytes;
};

class SafetensorsFile {
 public:
  // InvalidArgument: missing or not a regular file, a Git LFS pointer, or not safetensors. Corrupt:
  // shorter or longer than its header says. Both name the file and what is wrong. Blocks.
  static Result<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // in the order of offsets
  const std::unordered_map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorEntry* Find(std::string_view name) const;  // null if absent

  // Elements [first, first + count) as float; exact for all three types. REQUIRES: the range lies
  // within the tensor and its type is not kOther. Io names file, tensor and offset. Blocks.
  Status ReadFloats(const TensorEntry& tensor, uint64_t first, uint64_t count, float* out) const;
  // Bytes [first, first + count) of a tensor of any type. REQUIRES: within the tensor. Blocks.
  Status ReadBytes(const TensorEntry& tensor, uint64_t first, uint64_t count, void* out) const;

 private:
  SafetensorsFile(std::string path, int fd, uint64_t file_bytes);
  // Bytes [offset, offset + count) of the file. Corrupt if it has become too short.
  Status ReadBytesAt(uint64_t offset, uint64_t count, void* out) const;
  Status ReadHeader();
  Status ParseHeader(const std::string& text, uint64_t data_offset);
  Status CheckLayout(uint64_t data_offset);

  std::string path_;
  int fd_;
  uint64_t file_bytes_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string, std::string> metadata_;
  std::unordered_map<std::string, size_t> index_;  // name -> position in tensors_
};

}  // namespace marea
