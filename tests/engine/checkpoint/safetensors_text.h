// Safetensors bytes from a header text, well-formed or not.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace marea {

inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += header;
  bytes += data;
  return bytes;
}

}  // namespace marea
