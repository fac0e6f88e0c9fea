// Is a folder fit to be an NVMe tier? Answered in milliseconds, before anything is loaded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.h"

namespace marea {

struct DirectoryReport {
  std::string path;
  std::string file_system;  // "ext4", "xfs", "overlayfs", ... or its magic number in hex
  uint64_t free_bytes = 0;  // what a plain user may still write
  uint64_t total_bytes = 0;
  uint32_t alignment_bytes = 0;  // of direct I/O: offsets, lengths and memory; 0 if it is refused
  bool direct_io = false;        // O_DIRECT was tried on a file in this folder and worked
  std::string alignment_source;  // "statx", "probe"
  std::vector<std::string> warnings;  // whole sentences: overlayfs, network, a drive made of RAM
};

// Checks that `path` is given, exists, is a folder, is writable, is not tmpfs or ramfs, and that a
// file in it takes direct I/O in units of kPageBytes (tried with an unnamed file of one page, gone
// afterwards). Any thread; blocks for a few milliseconds.
//
// InvalidArgument names the path, what is wrong and the remedy. A folder that refuses direct I/O is
// reported with direct_io = false; DataFile decides.
Result<DirectoryReport> CheckNvmeDirectory(std::string_view path);

// "ext4" for 0xEF53 and so on; "0x1234abcd" for one that is not known.
std::string FileSystemName(uint64_t magic);

// The file system's magic number is that of memory: tmpfs, ramfs, hugetlbfs.
bool LivesInMemory(uint64_t magic);

}  // namespace marea
