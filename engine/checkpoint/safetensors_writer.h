// Writes a safetensors file of any size with bounded memory: the header first, then each tensor's
// bytes in order. Whole or not at all (AtomicFile).
//
// Owner: the caller. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/atomic_file.h"
#include "engine/checkpoint/safetensors.h"
#include "io/status.h"

namespace marea {

struct TensorSpec {
  std::string name;
  TensorType type;  // not kOther
  std::vector<int64_t> dims;
};

class SafetensorsWriter {
 public:
  // Reserves the whole file and writes the header, with {"format": "pt"} as metadata: Transformers
  // asks for it. REQUIRES: names are unique. Io as AtomicFile. Blocks.
  static Result<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path,
                                                           const std::vector<TensorSpec>& tensors);

  // Appends the next bytes of the tensors, in the order given to Create; calls may split anywhere.
  // On failure the writer can only be dropped, which removes what was written. Blocks.
  Status Append(std::span<const std::byte> bytes);
  // REQUIRES: exactly the announced bytes were appended. Blocks until durable.
  Status Finish();

  uint64_t file_bytes() const { return file_bytes_; }

 private:
  SafetensorsWriter(std::unique_ptr<AtomicFile> file, uint64_t file_bytes);

  std::unique_ptr<AtomicFile> file_;
  uint64_t file_bytes_;
};

}  // namespace marea
