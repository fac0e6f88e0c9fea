#include "io/device_options.h"

#include <fmt/format.h>

#include "io/transfer_set.h"

namespace marea {

const char* IoModeName(IoMode mode) {
  switch (mode) {
    case IoMode::kUringRegistered:
      return "io_uring with registered buffers";
    case IoMode::kUring:
      return "io_uring";
    case IoMode::kPosix:
      return "threads with pread/pwrite";
    case IoMode::kSimulated:
      return "simulated";
  }
  return "unknown";
}

Status ValidateOptions(const BlockDeviceOptions& options) {
  constexpr uint32_t kQueueDepthMax = 4096;
  if (options.queue_depth == 0 || options.queue_depth > kQueueDepthMax) {
    return Status::InvalidArgument(
        fmt::format("queue_depth {} is not between 1 and {}", options.queue_depth, kQueueDepthMax));
  }
  if (options.request_bytes == 0 || options.request_bytes % kPageBytes != 0 ||
      options.request_bytes > kAddressCutBytes) {
    return Status::InvalidArgument(
        fmt::format("a request of {} bytes is not a multiple of {} up to {}", options.request_bytes,
                    kPageBytes, kAddressCutBytes));
  }
  if (options.capacity == 0 || options.capacity >= UINT32_MAX) {
    return Status::InvalidArgument(
        fmt::format("a device with room for {} requests makes no sense", options.capacity));
  }
  if (!(options.silence_seconds_max >= 0 && options.silence_seconds_max <= 1e9)) {
    return Status::InvalidArgument(
        fmt::format("silence of {} seconds makes no sense", options.silence_seconds_max));
  }
  return Status::Ok();
}

}  // namespace marea
