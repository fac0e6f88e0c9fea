// How much memory this process may use, and how much it does.
//
// Read afresh from /proc and the cgroup tree at each call. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "io/status.h"

namespace marea {

inline constexpr uint64_t kNoLimit = UINT64_MAX;

struct MemoryLimits {
  uint64_t total_bytes = 0;          // MemTotal
  uint64_t available_bytes = 0;      // MemAvailable: a hint, some machines show little and grow
  uint64_t cgroup_bytes = kNoLimit;  // the smallest limit from this process's cgroup up to the root
  std::string cgroup_path;           // the file that holds that limit, empty if none
  uint64_t memlock_bytes = kNoLimit;  // RLIMIT_MEMLOCK (soft); kNoLimit with CAP_IPC_LOCK too
};

// `root` is prefixed to /proc, and to the mount points that it names: tests pass a folder.
Result<MemoryLimits> ReadMemoryLimits(const std::string& root = "");

struct ProcessMemory {
  uint64_t resident_bytes = 0;       // VmRSS
  uint64_t peak_resident_bytes = 0;  // VmHWM
};
Result<ProcessMemory> ReadProcessMemory();

// Processors' worth of time that the cgroup grants (cpu.max or cpu.cfs_quota_us), smallest from
// this process's cgroup up to the root; 0 if there is no quota.
double ReadCgroupCpuQuota(const std::string& root = "");

}  // namespace marea
