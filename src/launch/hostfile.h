// DeepSpeed's hostfile: which hosts a job has and how many ranks each of them runs.
//
//     # a comment
//     worker-1 slots=4
//     worker-2 slots=4
//
// Ranks count through the hosts in the file's order; the first host's name is the master address.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.h"

namespace marea {

inline constexpr uint64_t kRanksOfHostMax = 256;

struct Host {
  std::string name;
  uint32_t ranks = 0;
};

// The hosts of `text`; `path` is for messages only. InvalidArgument names the file, the line and
// what it should look like: a line that is no "HOST slots=N", a host named twice, no host at all.
Result<std::vector<Host>> ParseHostfile(const std::string& path, std::string_view text);

// The same from a file; InvalidArgument too if it cannot be read.
Result<std::vector<Host>> ReadHostfile(const std::string& path);

}  // namespace marea
