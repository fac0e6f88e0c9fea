// Is a path fit to be measured, and what would make its figures lie?
//
// What cannot be measured is refused (InvalidArgument, one sentence); what can be measured, but is
// not what a reader would take it for, is marked by a warning that stays with the figures.
// Any thread; blocks for some milliseconds a path.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/drive_details.h"
#include "io/nvme_directory.h"
#include "io/status.h"

namespace marea {

struct PathFacts {
  std::string folder;
  DirectoryReport directory;
  DriveDetails details;
  std::vector<std::string> warnings;
};

// Every folder is there, writable, on a drive, takes direct I/O, has `file_bytes` (by folder) free,
// and no two are on one drive.
Result<std::vector<PathFacts>> CheckPaths(std::span<const std::string> folders,
                                          std::span<const uint64_t> file_bytes);

// What the storage below a path is that its figures do not show: layers, copies, compression,
// a hypervisor, a slow link. Pure but for the size of a loop device's file.
std::vector<std::string> StorageWarnings(const PathFacts& facts);

// What the file system says of a file's extents (FIEMAP): unwritten, compressed or missing ones.
std::vector<std::string> ExtentWarnings(int fd, const std::string& folder, uint64_t file_bytes);

// What one drive moved while the benchmark moved `own`; both over the same time.
struct TrafficPair {
  std::string device;
  DriveTraffic drive;
  DriveTraffic own;
};
// More than our own: somebody else uses the drive. Less: a cache or a hole answered. Pure.
std::vector<std::string> TrafficWarnings(const TrafficPair& traffic);

// Where writing fell off a cliff (the end of a drive's fast cache), from the bytes of each second;
// empty if it did not. Pure.
std::string CliffWarning(std::span<const uint64_t> second_bytes);

}  // namespace marea
