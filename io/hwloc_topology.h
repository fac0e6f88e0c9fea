// hwloc's picture of the machine, as an owned object. Private to io.
//
// Move-only plain value; hwloc reads of one topology may run on several threads.
#pragma once

#include <hwloc.h>

#include <memory>

#include "io/status.h"

namespace marea {

struct HwlocDestroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, HwlocDestroy>;

// Loads processors, caches and NUMA nodes; no I/O devices. Blocks for some milliseconds.
inline Result<HwlocTopology> LoadHwloc() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::Failed("hwloc cannot be initialised");
  HwlocTopology topology(raw);
  if (hwloc_topology_load(raw) != 0) {
    return Status::Failed("hwloc cannot read the machine's topology; mount /sys and /proc");
  }
  return topology;
}

// The node with the operating system's index, or null.
inline hwloc_obj_t FindNode(const HwlocTopology& topology, int numa_node) {
  return numa_node < 0
             ? nullptr
             : hwloc_get_numanode_obj_by_os_index(topology.get(), static_cast<unsigned>(numa_node));
}

}  // namespace marea
