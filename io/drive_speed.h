// How fast drives are, all of them at once: measured in a second or two, so that chunks can be
// shared by speed. `marea bench` measures with care; this only has to know who is how much faster.
//
// Any thread; blocks. Note [speed at the start]:
// - The bytes go the way of a run's: O_DIRECT, the run's ring, depth and request size.
// - A region is written once first, as a run's file is: unwritten extents read at memory speed and
//   cost more to write. That also wakes the drive, and is not counted.
// - All paths stream at once and all go on until the last has moved enough, so that two paths on
//   one drive or one link are seen to share it. Then all read, likewise.
// - The file has no name: nothing is left behind, also when the process is killed.
// What it cannot see: a drive whose fast cache holds the region and not the run's file. That shows
// in the run (swap/path_watch.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/device_options.h"
#include "io/status.h"

namespace marea {

struct DriveSpeed {
  double read_rate = 0;  // bytes per second, > 0
  double write_rate = 0;

  // Bytes per second that are read and written, where both take turns: of a path that pages as
  // much out as in.
  double paging_rate() const { return 1 / (1 / read_rate + 1 / write_rate); }
};

struct DriveSpeedOptions {
  uint64_t region_bytes = uint64_t{64} << 20;
  // Each way: at least so much is moved over every path, unless the time is up before.
  uint64_t moved_bytes = uint64_t{256} << 20;
  double seconds_max = 1.0;  // for each of fill, write and read; slow drives finish their requests
  BlockDeviceOptions device;
};

struct DriveFolder {
  std::string path;
  uint64_t bytes_max = 0;  // the region is no larger; at least a page
};

// The speeds, in the order of the folders. Fails with the name of the folder whose file cannot be
// made (Io), does not take direct I/O (Unavailable), or fails a transfer (Io).
Result<std::vector<DriveSpeed>> MeasureDrives(std::span<const DriveFolder> folders,
                                              const DriveSpeedOptions& options);

}  // namespace marea
