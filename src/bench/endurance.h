// How long a drive lasts: what is written to it in a day beside what its maker says it bears (TBW,
// total bytes written).
//
// Two bases. A replayed plan: what a step writes on a path, at the rate of the replay; as
// everything else of a step takes no time there, a real run writes no faster. Writing alone: the
// measured rate, day and night; nothing can use a drive up faster.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace marea {

struct EnduranceEstimate {
  std::string path;
  uint64_t rating_bytes = 0;
  std::optional<uint64_t> step_write_bytes;  // absent: writing alone
  double bytes_per_day = 0;

  // Absent if nothing is written.
  std::optional<double> days() const;
};

// `step_write_bytes` by path; `steps_per_second` > 0.
std::vector<EnduranceEstimate> EnduranceOfReplay(std::span<const std::string> paths,
                                                 std::span<const uint64_t> step_write_bytes,
                                                 double steps_per_second, uint64_t rating_bytes);
EnduranceEstimate EnduranceOfWriting(const std::string& path, double write_bytes_per_second,
                                     uint64_t rating_bytes);

nlohmann::ordered_json EnduranceJson(std::span<const EnduranceEstimate> estimates);
// A line for each path, and what they stand on.
std::string EnduranceText(std::span<const EnduranceEstimate> estimates);

}  // namespace marea
