#include "src/flag_values.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

#include "io/units.h"

namespace marea {
namespace {

template <typename T>
bool ParseWhole(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end;
}

}  // namespace

Result<uint64_t> ParseCount(const std::string& flag, const std::string& text, uint64_t least,
                            uint64_t most) {
  uint64_t value = 0;
  if (ParseWhole(text, value) && value >= least && value <= most) return value;
  if (most == UINT64_MAX) {
    return Status::InvalidArgument(
        fmt::format("{} {}: it takes a whole number of {} or more", flag, text, least));
  }
  return Status::InvalidArgument(
      fmt::format("{} {}: it takes a whole number from {} to {}", flag, text, least, most));
}

Result<double> ParseNonNegative(const std::string& flag, const std::string& text) {
  double value = 0;
  if (ParseWhole(text, value) && std::isfinite(value) && value >= 0) return value;
  return Status::InvalidArgument(
      fmt::format("{} {}: it takes a number of 0 or more, as 3e-4", flag, text));
}

Result<SizeLimit> ParseSizeLimit(const std::string& flag, const std::string& text) {
  if (!text.empty() && text.back() == '%') {
    double percent = 0;
    const bool is_number = ParseWhole(text.substr(0, text.size() - 1), percent);
    if (!is_number || !(percent > 0 && percent <= 100)) {
      return Status::InvalidArgument(
          fmt::format("{} {}: a share is above 0% and at most 100%, as 40%", flag, text));
    }
    return SizeLimit{.bytes = std::nullopt, .fraction = percent / 100};
  }
  const Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return bytes.status().WithContext(flag);
  if (bytes.value() == 0) {
    return Status::InvalidArgument(
        fmt::format("{} {}: a budget is more than 0; write a size as 8GiB, or 40%", flag, text));
  }
  return SizeLimit{.bytes = bytes.value(), .fraction = std::nullopt};
}

Result<NvmePath> ParseNvmePath(const std::string& flag, const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool has_size = colon != std::string::npos && colon + 1 < text.size() &&
                        std::isdigit(static_cast<unsigned char>(text[colon + 1])) != 0 &&
                        text.find('/', colon) == std::string::npos;
  NvmePath path{.path = has_size ? text.substr(0, colon) : text, .limit = {}};
  if (path.path.empty()) {
    return Status::InvalidArgument(
        fmt::format("{} {}: the folder is missing; write {} FOLDER:SIZE", flag, text, flag));
  }
  if (has_size) {
    MAREA_ASSIGN_OR_RETURN(path.limit, ParseSizeLimit(flag, text.substr(colon + 1)));
  }
  return path;
}

Result<DeviceChoice> ParseDevice(const std::string& flag, const std::string& text) {
  if (text == "cpu") return DeviceChoice::kCpu;
  if (text == "cuda") return DeviceChoice::kCuda;
  return Status::InvalidArgument(fmt::format("{} {}: it is cuda or cpu", flag, text));
}

Result<OptimizerDevice> ParseOptimizerDevice(const std::string& flag, const std::string& text) {
  if (text == "auto") return OptimizerDevice::kAuto;
  if (text == "cpu") return OptimizerDevice::kCpu;
  if (text == "cuda") return OptimizerDevice::kGpu;
  return Status::InvalidArgument(fmt::format("{} {}: it is auto, cuda or cpu", flag, text));
}

}  // namespace marea
