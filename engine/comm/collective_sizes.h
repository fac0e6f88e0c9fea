// What every communicator asks of the spans of a collective before anything moves.
//
// Thread rule: pure functions.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/status.h"

namespace marea {

// `name` is the communicator's.
inline Status CheckGatherSizes(const std::string& name, uint32_t ranks, size_t shard_bytes,
                               size_t whole_bytes) {
  if (whole_bytes == shard_bytes * ranks) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("all-gather {}: {} bytes of each of {} ranks do not make {}", name, shard_bytes,
                  ranks, whole_bytes));
}

inline Status CheckScatterSize(const std::string& name, uint32_t ranks, size_t elements) {
  if (elements % ranks == 0) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("reduce-scatter {}: {} elements are not the same number for each of {} ranks",
                  name, elements, ranks));
}

}  // namespace marea
