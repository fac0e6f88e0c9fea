// A block device with a file and memory, in every mode there is: the same tests run on all.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "io/block_device.h"
#include "io/device_options.h"

namespace marea {

class DeviceHarness {
 public:
  virtual ~DeviceHarness() = default;
  virtual BlockDevice& device() = 0;
  virtual uint64_t file_bytes() const = 0;
  virtual std::span<std::byte> memory() = 0;  // registered where the mode registers
};

enum class HarnessKind { kUringRegistered, kUring, kPosix, kSimulated };
std::string HarnessName(HarnessKind kind);

// Null with the reason in *why if this machine does not offer the mode.
std::unique_ptr<DeviceHarness> MakeHarness(HarnessKind kind, BlockDeviceOptions options,
                                           std::string* why);

// One request and its completion.
Status Transfer(BlockDevice& device, const IoRequest& request);

}  // namespace marea
