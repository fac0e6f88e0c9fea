// Which drive a path lives on, and which kernel this is. Any thread; blocks for a file read or two.
#pragma once

#include <cstdint>
#include <string>

#include "io/status.h"

namespace marea {

struct DriveInfo {
  std::string device;  // "nvme0n1", "vda"; empty if the file system has no single device
  std::string model;   // as the drive names itself; empty if it does not
  bool rotational = false;
  bool in_memory = false;  // zram, brd, pmem: a drive made of memory
  uint32_t logical_block_bytes = 0;
};

// The drive below the file system of `path`; a partition counts as its drive. Fields stay empty
// where the kernel does not tell (overlayfs, network). Io if `path` does not exist.
Result<DriveInfo> FindDrive(const std::string& path);

std::string KernelVersion();  // "6.1.0-13-amd64"

}  // namespace marea
