#include "io/topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <memory>

#include "io/hwloc_topology.h"
#include "io/memory_limits.h"

namespace marea {
namespace {

struct BitmapFree {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

std::string CpuModel(const HwlocTopology& topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0);
  const char* const name =
      package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  return name == nullptr ? "unknown" : name;
}

// Cores with at least one hardware thread in `allowed`.
uint32_t CountCores(const HwlocTopology& topology, hwloc_const_bitmap_t allowed) {
  uint32_t count = 0;
  const int cores = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE);
  for (int i = 0; i < cores; ++i) {
    const hwloc_obj_t core =
        hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    if (hwloc_bitmap_intersects(core->cpuset, allowed)) ++count;
  }
  return count;
}

}  // namespace

Result<Topology> ReadTopology() {
  MAREA_ASSIGN_OR_RETURN(const HwlocTopology hwloc, LoadHwloc());
  const Bitmap allowed(hwloc_bitmap_alloc());
  // Affinity (taskset, cpuset); where it cannot be read, all that hwloc sees.
  if (hwloc_get_cpubind(hwloc.get(), allowed.get(), HWLOC_CPUBIND_THREAD) != 0) {
    hwloc_bitmap_copy(allowed.get(), hwloc_topology_get_allowed_cpuset(hwloc.get()));
  }
  Topology topology;
  topology.thread_count = static_cast<uint32_t>(std::max(1, hwloc_bitmap_weight(allowed.get())));
  topology.core_count = CountCores(hwloc, allowed.get());
  // Some virtual machines show no cores.
  if (topology.core_count == 0) topology.core_count = topology.thread_count;
  const double quota = ReadCgroupCpuQuota();
  topology.cpu_quota = topology.thread_count;
  if (quota > 0) {
    topology.cpu_quota = std::min(topology.thread_count, static_cast<uint32_t>(std::ceil(quota)));
  }
  topology.cpu_model = CpuModel(hwloc);
  const int nodes = hwloc_get_nbobjs_by_type(hwloc.get(), HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < nodes; ++i) {
    const hwloc_obj_t node =
        hwloc_get_obj_by_type(hwloc.get(), HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    topology.nodes.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory,
                              CountCores(hwloc, node->cpuset)});
  }
  if (topology.nodes.empty()) return Status::Failed("hwloc shows no NUMA node; mount /sys");
  return topology;
}

Status BindThisThreadToNode(int numa_node) {
  MAREA_ASSIGN_OR_RETURN(const HwlocTopology hwloc, LoadHwloc());
  const hwloc_obj_t node = FindNode(hwloc, numa_node);
  if (node == nullptr) {
    return Status::InvalidArgument(fmt::format("there is no NUMA node {}", numa_node));
  }
  if (hwloc_set_cpubind(hwloc.get(), node->cpuset, HWLOC_CPUBIND_THREAD) != 0) {
    return Status::Errno(ErrorCode::kUnavailable,
                         fmt::format("a thread cannot be bound to NUMA node {}", numa_node), errno);
  }
  return Status::Ok();
}

}  // namespace marea
