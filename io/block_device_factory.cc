#include "io/block_device_factory.h"

#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "io/posix_device.h"
#include "io/uring_device.h"

namespace marea {
namespace {

constexpr const char* kUringCost =
    "the kernel pins memory anew for every transfer: more processor time for each byte";
constexpr const char* kPosixCost =
    "a thread is blocked for every transfer: more processor time, and less bandwidth on fast "
    "drives";

constexpr const char* kAskedFor = "it was asked for";

std::string RemedyFor(const Status& status) {
  return status.error_number() == ENOMEM ? kMemlockRemedy : "none known";
}

Status Impossible(IoMode mode, const std::string& reason, const std::string& remedy) {
  return Status::Unavailable(
      fmt::format("{} is impossible here: {}; remedy: {}", IoModeName(mode), reason, remedy));
}

}  // namespace

Result<std::unique_ptr<BlockDevice>> MakeBlockDevice(std::span<const DeviceFile> files,
                                                     std::span<const std::span<std::byte>> buffers,
                                                     const BlockDeviceOptions& options) {
  MAREA_RETURN_IF_ERROR(ValidateOptions(options));
  const std::optional<IoMode> forced = options.mode;
  if (forced == IoMode::kSimulated) {
    return Status::InvalidArgument("a simulated device is made by tests only");
  }
  if (forced == IoMode::kPosix) {
    return MakePosixDevice(files, options, {forced.value(), kAskedFor, "", kPosixCost});
  }
  const UringProbe probe = ProbeUring();
  std::string reason = probe.cause;
  std::string remedy = probe.remedy;
  if (probe.error_number == 0 && forced != IoMode::kUring) {
    auto device = MakeUringDevice(files, buffers, options, {IoMode::kUringRegistered, "", "", ""});
    if (device.ok() || device.status().code() != ErrorCode::kUnavailable) return device;
    reason = device.status().message();
    remedy = RemedyFor(device.status());
  }
  if (forced == IoMode::kUringRegistered) return Impossible(*forced, reason, remedy);
  if (probe.error_number == 0) {
    if (forced == IoMode::kUring) reason = kAskedFor;
    auto device =
        MakeUringDevice(files, buffers, options, {IoMode::kUring, reason, remedy, kUringCost});
    if (device.ok() || device.status().code() != ErrorCode::kUnavailable) return device;
    reason = device.status().message();
    remedy = RemedyFor(device.status());
  }
  if (forced == IoMode::kUring) return Impossible(*forced, reason, remedy);
  return MakePosixDevice(files, options, {IoMode::kPosix, reason, remedy, kPosixCost});
}

}  // namespace marea
