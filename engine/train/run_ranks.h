// The ranks of a run as one of them sees them: who they are, and its communicators.
//
// Owner: TrainingRun; outlives what uses the communicators. Thread rule: made and destroyed by one
// thread; each communicator belongs to one thread at a time.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/comm/rank_group.h"
#include "engine/train/run_setup.h"
#include "io/status.h"

namespace marea {

struct RunRanks {
  std::unique_ptr<RankGroup> group;
  std::unique_ptr<Collectives> gpus;     // the plan's collectives on GPUs; null on the CPU
  std::unique_ptr<Communicator> shards;  // the plan's on the CPU; between runs of it, weights
  std::unique_ptr<Communicator> sums;    // losses and norms

  Collectives& lane() const { return gpus ? *gpus : *shards; }
};

// Meets the other ranks and makes sure that they run the same: model, config, data, seed, plan. The
// first difference is InvalidArgument on every rank. Null for a run of one rank. Blocks.
Result<std::unique_ptr<RunRanks>> JoinRanks(const RunSetup& setup);

// RAM that the communicators over Gloo hold.
uint64_t CommunicatorBytes(const World& world);

}  // namespace marea
