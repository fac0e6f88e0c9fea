#include "engine/train/numa_home.h"

#include <algorithm>
#include <vector>

#include "io/sysfs.h"
#include "io/units.h"

namespace marea {

NumaHome ChooseNumaHome(const Topology& topology, const World& world, int gpu_node) {
  const uint32_t ranks = world.local_size;
  const uint32_t share = std::max(1u, std::min(topology.core_count, topology.cpu_quota) / ranks);
  const NumaHome unbound{std::nullopt, share};
  std::vector<NumaNode> nodes;  // memory without processors is nobody's home
  for (const NumaNode& node : topology.nodes) {
    if (node.core_count > 0) nodes.push_back(node);
  }
  if (ranks < 2 || nodes.size() < 2) return unbound;
  auto home = std::find_if(nodes.begin(), nodes.end(),
                           [&](const NumaNode& node) { return node.index == gpu_node; });
  if (home == nodes.end()) {
    // Fewer ranks than nodes: each needs more than one.
    if (gpu_node >= 0 || ranks < nodes.size()) return unbound;
    home = nodes.begin() + static_cast<ptrdiff_t>(world.local_rank * nodes.size() / ranks);
  }
  const auto neighbours =
      static_cast<uint32_t>(DivideRoundUp(ranks, static_cast<uint64_t>(nodes.size())));
  return {home->index, std::min(share, std::max(1u, home->core_count / neighbours))};
}

int NumaNodeOfPci(const std::string& address) {
  return ReadNumaNode("/sys/bus/pci/devices/" + address);
}

}  // namespace marea
