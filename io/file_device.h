// What the devices that work on open files share: the files, the bookkeeping of transfers, the mode
// and the check that one thread drives them. A derived class brings the way bytes travel.
//
// Owner and thread rule: as BlockDevice.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/block_device.h"
#include "io/device_options.h"
#include "io/thread_check.h"
#include "io/transfer_set.h"

namespace marea {

class FileDevice : public BlockDevice {
 public:
  size_t in_flight() const final { return transfers_.in_flight(); }
  size_t capacity() const final { return transfers_.capacity(); }
  const IoModeReport& mode() const final { return mode_; }
  const IoCounters& counters() const final { return transfers_.counters(); }

 protected:
  // REQUIRES: ValidateOptions(options).ok().
  FileDevice(std::span<const DeviceFile> files, const BlockDeviceOptions& options,
             IoModeReport report)
      : transfers_(options, PathsOf(files)), mode_(std::move(report)) {
    for (const DeviceFile& file : files) fds_.push_back(file.fd);
  }

  TransferSet transfers_;  // the driving thread's
  ThreadCheck thread_;     // the driving thread
  std::vector<int> fds_;   // by IoRequest::file; fixed

 private:
  static std::vector<std::string> PathsOf(std::span<const DeviceFile> files) {
    std::vector<std::string> paths;
    for (const DeviceFile& file : files) paths.push_back(file.path);
    return paths;
  }

  const IoModeReport mode_;
};

}  // namespace marea
