// How the chunks of a run are shared between its NVMe paths.
//
// Thread rule: any thread; MeasurePaths blocks for about three seconds at most.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/device_options.h"
#include "io/drive_speed.h"
#include "io/status.h"
#include "swap/store_layout.h"

namespace marea {

// Measures every path, all at once, and makes its speed its weight. Each writes a nameless file of
// at most 64 MiB, which is gone at the end. REQUIRES: two paths or more. Fails with what
// MeasureDrives says.
Result<std::vector<DriveSpeed>> MeasurePaths(const BlockDeviceOptions& device,
                                             std::vector<StorePath>& paths);

// "NVMe paths: /a reads 3.10 and writes 2.00 GB/s, /b ...: chunks are shared 72:28", and why not by
// speed where a path is too small for its share. The shares are those of the layout's bytes.
std::string SharesText(std::span<const StorePath> paths, std::span<const DriveSpeed> speeds,
                       const StoreLayout& layout);

}  // namespace marea
