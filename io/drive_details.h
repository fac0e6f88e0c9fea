// What a drive and its file system are, beyond what a tier needs: for people who judge figures.
//
// Everything is read afresh from /proc and /sys; fields stay empty where the kernel does not tell.
// Any thread; blocks for some file reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/drive_info.h"
#include "io/status.h"

namespace marea {

// One end of a PCIe link as the kernel names it, and what it carries after line coding.
struct PcieLink {
  std::string speed;  // "16.0 GT/s PCIe"
  uint32_t width = 0;
  double bytes_per_second = 0;
};

struct DriveDetails {
  DriveInfo drive;
  std::vector<std::string> members;  // drives below a stacked one (dm, md, bcache)
  std::string dm_uuid;               // "LVM-...", "CRYPT-...", "VDO-..." of a device-mapper device
  std::string loop_file;             // what a loop device shows
  std::string scheduler;             // "none", "mq-deadline"
  uint64_t request_bytes_max = 0;    // max_sectors_kb: larger requests are split by the kernel
  int numa_node = -1;                // where the drive is attached
  std::optional<PcieLink> link;      // as it runs now
  std::optional<PcieLink> link_max;  // what the drive could do
  std::optional<double> celsius;
  bool virtual_drive = false;  // virtio, Xen: a hypervisor decides what is behind it
  std::string mount_point;
  std::string mount_options;
};

// `root` is prefixed to /sys and /proc: tests pass a folder. Io if `path` does not exist.
Result<DriveDetails> ReadDriveDetails(const std::string& path, const std::string& root = "");

// "16.0 GT/s PCIe" and lanes in bytes a second, after 8b/10b or 128b/130b coding; 0 if unreadable.
double PcieBytesPerSecond(const std::string& speed, uint32_t width);

// What a drive has moved since the machine started (/proc/diskstats), for all users of it.
struct DriveTraffic {
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
};
// Nothing if the drive is not listed.
std::optional<DriveTraffic> ReadDriveTraffic(const std::string& device,
                                             const std::string& root = "");

}  // namespace marea
