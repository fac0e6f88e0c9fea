// What this machine has: processors, NUMA nodes, memory and its limits.
//
// Everything is read afresh at each call; nothing is cached or changed. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/status.h"

namespace marea {

struct NumaNode {
  int index;  // the operating system's
  uint64_t memory_bytes;
  uint32_t core_count;
};

struct Topology {
  uint32_t core_count = 0;    // physical cores that this process may use
  uint32_t thread_count = 0;  // hardware threads that this process may use (affinity, cpuset)
  // Processors' worth of time that the cgroup grants, rounded up; thread_count if it sets no quota.
  uint32_t cpu_quota = 0;
  std::string cpu_model;
  std::vector<NumaNode> nodes;  // at least one
};

// "This process" is the calling thread, whose affinity counts: call it before threads are bound.
// Blocks for some milliseconds.
Result<Topology> ReadTopology();

// Binds the calling thread to the processors of a NUMA node.
Status BindThisThreadToNode(int numa_node);

}  // namespace marea
