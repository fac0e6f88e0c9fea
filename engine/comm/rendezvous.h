// How ranks meet: the part of RankGroup::Join that ends with a connection to rank 0.
//
// 1. Rank 0 serves the store at the master port, unless an agent does; all connect to it.
// 2. Each rank enters itself once, with its host, process and world size. Who finds its place
//    taken, or rank 0's world size another one, writes a refusal, which ends the meeting for all.
// 3. When all are there, rank 0 opens a port for the line between the ranks (rank_watch.h) and
//    writes it down; the others connect to it, and rank 0 welcomes them all at once.
//
// Thread rule: one call, one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/c10d_store.h"
#include "engine/comm/frame_socket.h"
#include "engine/comm/rank_group.h"

namespace marea {

struct Meeting {
  std::unique_ptr<RendezvousStore> store;
  std::vector<std::string> titles;   // "rank 1 (host gpu2, process 4711)", by rank
  std::vector<FrameSocket> sockets;  // at rank 0 to ranks 1.., elsewhere to rank 0
  std::string local_address;
  std::string store_prefix;
};

// REQUIRES: world.size > 1. May hang where another program holds the address: RunBounded.
Result<Meeting> Meet(const World& world, const RankGroupOptions& options, Deadline deadline);

}  // namespace marea
