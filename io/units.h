// Sizes as people write and read them.
//
// GiB (2^30) and GB (10^9) are different words: `8GiB` = `8G` = 8 * 2^30, `500MB` = 500 * 10^6.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/status.h"

namespace marea {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// The unit of direct I/O, of file layout and of every shard's start.
inline constexpr uint64_t kPageBytes = 4 * kKiB;

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr uint64_t DivideRoundUp(uint64_t value, uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Parses "8GiB", "8G", "8g", "1.5GiB", "500MB", "4096", "3e9". InvalidArgument names the text and
// an example. Negative, empty, overflowing or not-a-number texts are refused.
Result<uint64_t> ParseBytes(std::string_view text);

// "1.50 GiB", "512 MiB", "0 B": three significant digits.
std::string FormatBytes(uint64_t bytes);

// "3.21 GB/s" from bytes per second, in powers of ten as drives are sold.
std::string FormatRate(double bytes_per_second);

}  // namespace marea
