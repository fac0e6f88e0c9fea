#include "engine/train/numa_home.h"

#include <gtest/gtest.h>

#include "io/units.h"

namespace marea {
namespace {

Topology MachineOf(uint32_t nodes, uint32_t cores_each) {
  Topology topology;
  topology.core_count = topology.thread_count = topology.cpu_quota = nodes * cores_each;
  for (uint32_t i = 0; i < nodes; ++i) {
    topology.nodes.push_back({static_cast<int>(i), 64 * kGiB, cores_each});
  }
  return topology;
}

World LocalRank(uint32_t rank, uint32_t ranks) {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = ranks;
  return world;
}

constexpr int kUnknown = -1;

TEST(NumaHome, ARankAloneIsNotBound) {
  const NumaHome home = ChooseNumaHome(MachineOf(2, 16), LocalRank(0, 1), 1);
  EXPECT_EQ(home.node, std::nullopt);
  EXPECT_EQ(home.cores, 32u);
}

TEST(NumaHome, NothingIsBoundWhereThereIsOneNode) {
  const NumaHome home = ChooseNumaHome(MachineOf(1, 16), LocalRank(3, 4), 0);
  EXPECT_EQ(home.node, std::nullopt);
  EXPECT_EQ(home.cores, 4u);
}

TEST(NumaHome, ARankIsWhereItsGpuIs) {
  for (uint32_t rank = 0; rank < 8; ++rank) {
    const int gpu_node = rank < 4 ? 1 : 0;
    const NumaHome home = ChooseNumaHome(MachineOf(2, 32), LocalRank(rank, 8), gpu_node);
    EXPECT_EQ(home.node, gpu_node);
    EXPECT_EQ(home.cores, 8u);
  }
}

TEST(NumaHome, RanksWithoutGpusAreSpreadInOrder) {
  std::vector<int> nodes;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    nodes.push_back(*ChooseNumaHome(MachineOf(2, 8), LocalRank(rank, 4), kUnknown).node);
  }
  EXPECT_EQ(nodes, (std::vector<int>{0, 0, 1, 1}));
}

TEST(NumaHome, FewerRanksThanNodesAreNotBoundWithoutGpus) {
  EXPECT_EQ(ChooseNumaHome(MachineOf(4, 8), LocalRank(0, 2), kUnknown).node, std::nullopt);
  EXPECT_EQ(ChooseNumaHome(MachineOf(4, 8), LocalRank(0, 2), 3).node, 3);
}

TEST(NumaHome, MemoryWithoutProcessorsIsNobodysHome) {
  Topology topology = MachineOf(2, 8);
  topology.nodes.push_back({2, 256 * kGiB, 0});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ChooseNumaHome(topology, LocalRank(rank, 2), kUnknown).node, static_cast<int>(rank));
  }
}

TEST(NumaHome, ACgroupsQuotaCounts) {
  Topology topology = MachineOf(2, 16);
  topology.cpu_quota = 4;
  EXPECT_EQ(ChooseNumaHome(topology, LocalRank(0, 2), kUnknown).cores, 2u);
}

TEST(NumaHome, OddNumbersLeaveACoreForEach) {
  for (uint32_t rank = 0; rank < 7; ++rank) {
    const NumaHome home = ChooseNumaHome(MachineOf(2, 2), LocalRank(rank, 7), kUnknown);
    EXPECT_TRUE(home.node == 0 || home.node == 1);
    EXPECT_EQ(home.cores, 1u);
  }
}

TEST(NumaHome, ADeviceThatIsNotThereHasNoNode) {
  EXPECT_EQ(NumaNodeOfPci("ffff:ff:ff.7"), -1);
}

}  // namespace
}  // namespace marea
