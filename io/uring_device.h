// BlockDevice on io_uring: one ring, driven by one thread, no io-wq workers in steady state.
//
// Method (axboe/liburing): SINGLE_ISSUER | DEFER_TASKRUN | COOP_TASKRUN, dropping what the kernel
// refuses; registered buffers; a bounded number of requests in flight, each reached through
// user_data; one completion handler for whole, short and failed transfers. A read of an eventfd is
// kept armed in the ring, so that Wake ends a blocked Reap.
//
// Files are not registered. The kernel takes a ring apart in the background, up to seconds after it
// was closed or its process was killed, and a registered file stays open as long: its lock holds,
// its space is not free, its file system cannot be unmounted. Only the thread that drives the ring
// could take them back in time, and nothing is saved: six alternating pairs of reads of 1 MiB at
// depth 32 took 9.58 core-ms a GB without and 9.57 with registered files.
//
// Owner and thread rule: as BlockDevice. The ring is made disabled and enabled by the first Submit
// or Reap, so the thread that drives it need not be the one that made it; afterwards a call from
// any other thread (but Wake) is a programmer error. The destructor may run on any thread once
// nothing is in flight; with transfers in flight it belongs to the driving thread and blocks until
// they end, for the kernel still owns their memory.
//
// If io_uring_enter itself fails, the device is broken: every request in flight completes with that
// Status, later ones are refused with it. The memory of requests that failed so may still be
// written by the kernel until the device is destroyed. A drive that is silent for longer than
// BlockDeviceOptions allows breaks the device too (ETIMEDOUT); the kernel keeps the pages of its
// transfers until they end, even when the device and the memory are gone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "io/device_options.h"
#include "io/status.h"

namespace marea {

// Makes a device in the mode `report.mode` (kUringRegistered or kUring); `report` is what mode()
// will say. Unavailable if this mode is impossible: the message says what was refused,
// error_number() why (ENOMEM: the memlock limit).
Result<std::unique_ptr<BlockDevice>> MakeUringDevice(std::span<const DeviceFile> files,
                                                     std::span<const std::span<std::byte>> buffers,
                                                     const BlockDeviceOptions& options,
                                                     IoModeReport report);

inline constexpr const char* kMemlockRemedy =
    "ulimit -l unlimited (for good: memlock in /etc/security/limits.conf; in a container: docker "
    "run "
    "--ulimit memlock=-1)";

// Can this process use io_uring at all? Sets up a ring of two entries and runs a no-op through it.
struct UringProbe {
  int error_number = 0;  // 0: it works, and the texts are empty
  std::string cause;
  std::string remedy;
};
UringProbe ProbeUring();

}  // namespace marea
