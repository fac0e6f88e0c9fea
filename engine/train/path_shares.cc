#include "engine/train/path_shares.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/check.h"
#include "io/units.h"

namespace marea {
namespace {

// There is no room for one more chunk of the largest size.
bool IsFull(const StorePath& path, const PathLayout& held, const StoreLayout& layout) {
  uint64_t largest = 0;
  for (const PathLayout& other : layout.paths) {
    for (const ChunkHome& home : other.homes) {
      largest = std::max(largest, home.slot_count * RoundUp(home.bytes, kPageBytes));
    }
  }
  return held.file_bytes + largest > path.bytes_max;
}

}  // namespace

Result<std::vector<DriveSpeed>> MeasurePaths(const BlockDeviceOptions& device,
                                             std::vector<StorePath>& paths) {
  MAREA_CHECK(paths.size() >= 2, "there is nothing to share with one path");
  DriveSpeedOptions options;
  options.device = device;
  std::vector<DriveFolder> folders;
  for (const StorePath& path : paths) folders.push_back({path.path, path.bytes_max});
  MAREA_ASSIGN_OR_RETURN(std::vector<DriveSpeed> speeds, MeasureDrives(folders, options));
  for (size_t i = 0; i < paths.size(); ++i) paths[i].weight = speeds[i].paging_rate();
  return speeds;
}

std::string SharesText(std::span<const StorePath> paths, std::span<const DriveSpeed> speeds,
                       const StoreLayout& layout) {
  double bytes = 0;
  double weights = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    bytes += static_cast<double>(layout.paths[i].file_bytes - kStoreDataOffset);
    weights += paths[i].weight;
  }
  std::string text = "NVMe paths: ";
  std::string shares;
  std::string small;
  for (size_t i = 0; i < paths.size(); ++i) {
    const char* const comma = i == 0 ? "" : ", ";
    text += fmt::format("{}{} reads {} and writes {}", comma, paths[i].path,
                        FormatRate(speeds[i].read_rate), FormatRate(speeds[i].write_rate));
    const double held = static_cast<double>(layout.paths[i].file_bytes - kStoreDataOffset);
    const double share = 100 * held / bytes;
    shares += fmt::format("{}{:.0f}", i == 0 ? "" : ":", share);
    constexpr double kMissing = 5;  // percent of all bytes
    if (share < 100 * paths[i].weight / weights - kMissing &&
        IsFull(paths[i], layout.paths[i], layout)) {
      small += fmt::format("{}{} ({})", small.empty() ? "" : ", ", paths[i].path,
                           FormatBytes(paths[i].bytes_max));
    }
  }
  text += ": chunks are shared " + shares;
  if (!small.empty())
    text += fmt::format(", not by speed alone, as {} has no room for more", small);
  return text;
}

}  // namespace marea
