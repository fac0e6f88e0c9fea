// BlockDevice on threads with pread and pwrite: for kernels and containers without io_uring.
//
// Owner and thread rule: as BlockDevice; a call from a second thread (but Wake) is a programmer
// error. It owns min(queue_depth, kPosixThreadsMax) threads named "marea-io-N", which take pieces
// from one bounded queue and put results into another; both hold as many entries as there are
// threads, so neither can overflow. What exceeds that waits in the transfer set. The destructor
// waits for transfers in progress and drops the rest.
#pragma once

#include <memory>
#include <span>

#include "io/device_options.h"
#include "io/status.h"

namespace marea {

inline constexpr uint32_t kPosixThreadsMax = 16;

// `report` is what mode() will say. Fails (Unavailable) only if a thread cannot be started.
Result<std::unique_ptr<BlockDevice>> MakePosixDevice(std::span<const DeviceFile> files,
                                                     const BlockDeviceOptions& options,
                                                     IoModeReport report);

}  // namespace marea
