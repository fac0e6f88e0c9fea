// What RAM and processor give: a copy's bandwidth, and AdamW's parameters a second.
//
// Method: after a dropped run, the median of runs that fill the time, at least three. Results are
// compared with what they must be before anything is timed. Buffers are far larger than caches, and
// smaller only where the machine has little memory.
//
// Thread rule: the command's thread; each call blocks for its time and some tenths of a second.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "io/status.h"

namespace marea {

struct SpeedOptions {
  double seconds = 5;                       // of each figure
  uint32_t threads = 1;                     // >= 1
  const std::atomic<bool>* stop = nullptr;  // set: Cancelled
};

// The median seconds of `body`. The first failure of `body`; Cancelled.
Result<double> MedianRunSeconds(const SpeedOptions& options, const std::function<Status()>& body);

// Bytes read plus bytes written a second, by memcpy in all threads. Memory itself moves up to half
// as much again: a line is fetched before it is overwritten.
Result<double> MeasureRamCopy(const SpeedOptions& options);

// Parameters a second of AdamW on the split master (bf16 weight and gradient), with the best vector
// instructions here: 14 bytes a parameter read, 12 of them written back.
Result<double> MeasureAdamW(const SpeedOptions& options);

}  // namespace marea
