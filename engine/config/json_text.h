// JSON text into a value, with errors that point at the place.
//
// Strict: no comments, no trailing commas, no duplicate keys (the last one would win silently).
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "io/status.h"

namespace marea {

// InvalidArgument: "<origin>, line L, column C: <what>" for malformed text, or the path of a key
// that appears twice.
Result<nlohmann::json> ParseJsonText(const std::string& text, const std::string& origin);

// The whole of a small file. InvalidArgument if `path` is missing, no regular file, unreadable, or
// larger than `bytes_max`. Blocks.
Result<std::string> ReadSmallFile(const std::string& path, uint64_t bytes_max);

}  // namespace marea
