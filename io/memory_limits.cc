#include "io/memory_limits.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <vector>

#include "io/mount_table.h"
#include "io/units.h"

namespace marea {
namespace {

// "Name:   1234 kB" in a file like /proc/meminfo, in bytes.
std::optional<uint64_t> ReadKibField(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, name.size() + 1, name + ":") != 0) continue;
    std::istringstream text(line.substr(name.size() + 1));
    uint64_t kib = 0;
    if (text >> kib) return kib * kKiB;
  }
  return std::nullopt;
}

// CAP_IPC_LOCK lifts the limit of locked memory.
bool MayLockAnything() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[0].effective & (1U << CAP_IPC_LOCK)) != 0;
}

uint64_t MemlockBytes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      MayLockAnything()) {
    return kNoLimit;
  }
  return limit.rlim_cur;
}

// Where one cgroup hierarchy is mounted, and this process's place in it.
struct CgroupPlace {
  bool version2 = false;
  std::string mount;  // folder, with the root prefix
  std::string path;   // below the mount, "" or "/a/b"
};

bool HasWord(const std::string& list, const std::string& word) {
  std::istringstream in(list);
  std::string item;
  while (std::getline(in, item, ',')) {
    if (item == word) return true;
  }
  return false;
}

// This process's path in the hierarchy of `controller` (version 1), or in the unified one if
// `controller` is empty. Lines are "id:controllers:path".
std::optional<std::string> CgroupPath(const std::string& root, const std::string& controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : HasWord(controllers, controller)) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// Both hierarchies that may limit `controller`.
std::vector<CgroupPlace> FindPlaces(const std::string& root, const std::string& controller) {
  std::vector<CgroupPlace> places;
  for (const Mount& mount : ReadMounts(root + "/proc")) {
    const bool version2 = mount.type == "cgroup2";
    if (!version2 && (mount.type != "cgroup" || !HasWord(mount.super_options, controller))) {
      continue;
    }
    std::optional<std::string> path = CgroupPath(root, version2 ? "" : controller);
    if (!path.has_value()) continue;
    // In a container the mount may show only a part of the tree: "/docker/id".
    if (mount.root != "/" && path->compare(0, mount.root.size(), mount.root) == 0) {
      *path = path->substr(mount.root.size());
    }
    if (*path == "/") path->clear();
    places.push_back({version2, root + mount.point, *path});
  }
  return places;
}

// Calls `visit` with each folder from this process's cgroup up to the mount point. A folder that is
// not visible here (a foreign namespace) is passed over.
void WalkUp(const CgroupPlace& place, const std::function<void(const std::string&)>& visit) {
  std::string path = place.path;
  while (true) {
    visit(place.mount + path);
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// Version 1 says "no limit" with a number near 2^63.
constexpr uint64_t kVersion1NoLimit = uint64_t{1} << 62;

void ReadCgroupMemory(const std::string& root, MemoryLimits* limits) {
  for (const CgroupPlace& place : FindPlaces(root, "memory")) {
    WalkUp(place, [&](const std::string& folder) {
      const std::string file = folder + (place.version2 ? "/memory.max" : "/memory.limit_in_bytes");
      std::ifstream in(file);
      uint64_t bytes = 0;
      if (!(in >> bytes) || bytes >= kVersion1NoLimit) return;  // missing, or "max"
      if (bytes < limits->cgroup_bytes) {
        limits->cgroup_bytes = bytes;
        limits->cgroup_path = file;
      }
    });
  }
}

}  // namespace

Result<MemoryLimits> ReadMemoryLimits(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  const std::optional<uint64_t> total = ReadKibField(meminfo, "MemTotal");
  if (!total.has_value()) {
    return Status::Failed(meminfo + " does not say how much memory there is; mount /proc");
  }
  MemoryLimits limits;
  limits.total_bytes = *total;
  limits.available_bytes = ReadKibField(meminfo, "MemAvailable").value_or(*total);
  limits.memlock_bytes = MemlockBytes();
  ReadCgroupMemory(root, &limits);
  return limits;
}

Result<ProcessMemory> ReadProcessMemory() {
  const std::string file = "/proc/self/status";
  const std::optional<uint64_t> resident = ReadKibField(file, "VmRSS");
  const std::optional<uint64_t> peak = ReadKibField(file, "VmHWM");
  if (!resident.has_value() || !peak.has_value()) {
    return Status::Failed(file + " does not say how much memory is resident; mount /proc");
  }
  return ProcessMemory{.resident_bytes = *resident, .peak_resident_bytes = *peak};
}

double ReadCgroupCpuQuota(const std::string& root) {
  double quota = 0;
  for (const CgroupPlace& place : FindPlaces(root, "cpu")) {
    WalkUp(place, [&](const std::string& folder) {
      double granted = 0;
      double period = 0;
      if (place.version2) {
        std::ifstream in(folder + "/cpu.max");
        if (!(in >> granted >> period)) return;  // missing, or "max 100000"
      } else {
        std::ifstream granted_file(folder + "/cpu.cfs_quota_us");
        std::ifstream period_file(folder + "/cpu.cfs_period_us");
        if (!(granted_file >> granted) || !(period_file >> period)) return;
      }
      if (granted <= 0 || period <= 0) return;  // -1: none
      quota = quota == 0 ? granted / period : std::min(quota, granted / period);
    });
  }
  return quota;
}

}  // namespace marea
