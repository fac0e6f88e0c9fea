// The best block device that this machine allows.
//
// Order of preference: io_uring with registered buffers; io_uring without (the memlock limit is
// too small); threads with pread/pwrite (io_uring is forbidden or missing). The device's mode()
// says which one it is, why not a better one, what that costs and the line that would lift it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "io/device_options.h"
#include "io/status.h"

namespace marea {

// `files` are open for reading and writing and outlive the device, as do `buffers`, the memory that
// requests will mostly use (arenas): it is registered with the kernel where that is possible.
// Memory outside of them may be used too, at the price of pinning per request.
//
// Blocks while buffers are registered (about 50 ms for each GiB). The device may be made by one
// thread and driven by another. Fails only if options.mode forces a mode that is impossible here
// (Unavailable, naming cause and remedy), if the options make no sense, or if threads cannot start.
Result<std::unique_ptr<BlockDevice>> MakeBlockDevice(std::span<const DeviceFile> files,
                                                     std::span<const std::span<std::byte>> buffers,
                                                     const BlockDeviceOptions& options);

}  // namespace marea
