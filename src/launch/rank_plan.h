// Which ranks this node starts and what each finds in its environment: torchrun's variables, so
// that a rank need not know who started it.
//
// Thread rule: pure functions, but for FreePort, which asks the system.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/status.h"
#include "src/launch/hostfile.h"

namespace marea {

// What torchrun takes, too, when it cannot ask for a free one on every node.
inline constexpr uint16_t kMasterPortOfNodes = 29500;

struct RankPlan {
  uint32_t world_size = 1;
  uint32_t node_rank = 0;
  uint32_t first_rank = 0;   // of this node
  uint32_t local_ranks = 1;  // of this node
  std::string master_address;
  uint16_t master_port = 0;
};

// Ranks of node `node_rank` of `nodes`. REQUIRES: node_rank < nodes.size().
RankPlan PlanRanks(const std::vector<Host>& nodes, uint32_t node_rank, std::string master_address,
                   uint16_t master_port);

// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR and MASTER_PORT of the
// `local_rank`th rank here.
std::vector<std::pair<std::string, std::string>> RankVariables(const RankPlan& plan,
                                                               uint32_t local_rank);

// A TCP port that nobody listens on now. Another process may take it before a rank does: then that
// rank says so.
Result<uint16_t> FreePort();

// `words` as a shell takes them back.
std::string ShellText(const std::vector<std::string>& words);

}  // namespace marea
