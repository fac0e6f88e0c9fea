// What every implementation of BlockDevice is made from.
//
// Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "io/block_device.h"
#include "io/units.h"

namespace marea {

// A file that the caller has opened and keeps open; the path is for messages.
struct DeviceFile {
  int fd;
  std::string path;
};

struct BlockDeviceOptions {
  // Transfers that the kernel sees at once. More waits in the device's own queue.
  uint32_t queue_depth = 32;
  // Larger requests are split into pieces of this size. A multiple of kPageBytes, at most 1 GiB.
  uint64_t request_bytes = kMiB;
  // The most requests that may be submitted and not yet reaped.
  size_t capacity = 4096;
  // A drive that has transfers and completes none of them for so long is taken for dead: the device
  // breaks, and everything in flight fails with ETIMEDOUT. 0: wait for ever. Only io_uring can let
  // go of a transfer; a thread in pread or pwrite stays with it.
  double silence_seconds_max = 120;
  // Forces one mode: if it is impossible here, making the device fails and names the cause.
  std::optional<IoMode> mode;
};

// InvalidArgument names the field that makes no sense.
Status ValidateOptions(const BlockDeviceOptions& options);

}  // namespace marea
