// The texts of flags as values. InvalidArgument names the flag, its text and an example.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/train/run_options.h"
#include "io/status.h"

namespace marea {

// A whole number from `least` to `most`, in digits.
Result<uint64_t> ParseCount(const std::string& flag, const std::string& text, uint64_t least,
                            uint64_t most);

// A finite number of 0 or more.
Result<double> ParseNonNegative(const std::string& flag, const std::string& text);

// A size as in units.h, or a share: "40%", above 0 and at most 100.
Result<SizeLimit> ParseSizeLimit(const std::string& flag, const std::string& text);

// PATH or PATH:SIZE. What follows the last colon is a size if it begins with a digit and holds no
// slash; a folder whose own name ends so is written with a slash behind it.
Result<NvmePath> ParseNvmePath(const std::string& flag, const std::string& text);

// "cuda" or "cpu".
Result<DeviceChoice> ParseDevice(const std::string& flag, const std::string& text);
Result<OptimizerDevice> ParseOptimizerDevice(const std::string& flag, const std::string& text);

}  // namespace marea
