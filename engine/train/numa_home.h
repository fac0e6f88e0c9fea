// Where the ranks of one machine live: each on the NUMA node of its GPU, or else spread evenly, so
// that its arena, its threads and its copies stay on one socket.
//
// Thread rule: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/comm/world.h"
#include "io/status.h"
#include "io/topology.h"
#include "swap/gpu_probe.h"

namespace marea {

struct NumaHome {
  std::optional<int> node;  // the operating system's index; none: the rank is not bound
  uint32_t cores = 1;       // physical cores that are this rank's
};

// One rank alone on its machine is not bound: it may need the memory of all nodes. `gpu_node` is
// negative where the GPU's node is not known or the CPU computes. Ranks on GPUs of which some nodes
// are not known are bound one by one; the share of cores counts on GPUs being spread evenly.
NumaHome ChooseNumaHome(const Topology& topology, const World& world, int gpu_node);

// The node that a PCI device ("0000:1b:00.0") hangs on; -1 where the kernel does not say.
int NumaNodeOfPci(const std::string& address);

}  // namespace marea
