// Which rank this process is, of how many, and where rank 0 is found: read from what started it.
//
// Sources, the first that is there: torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE,
// TORCHELASTIC_RESTART_COUNT), as documented for torch.distributed.run; SLURM's of a job step, as
// in srun(1); none of them: one rank.
//
// Thread rule: plain values; reads the environment, so call it before threads that change it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "io/status.h"

namespace marea {

struct World {
  uint32_t rank = 0;
  uint32_t size = 1;
  uint32_t local_rank = 0;  // among the ranks of this machine
  uint32_t local_size = 1;
  std::string master_address = "127.0.0.1";  // name or address of rank 0's machine
  uint16_t master_port = 0;                  // 0 only where size is 1
  uint32_t restart = 0;                      // how often the ranks were started anew by an agent
  bool agent_store = false;                  // an agent serves the store: no rank may
};

// InvalidArgument names the variable that is missing, malformed or contradicts another.
Result<World> WorldFromEnvironment();

// The same from any source of variables: nothing where one is not set.
using Variables = std::function<std::optional<std::string>(const std::string&)>;
Result<World> WorldFromVariables(const Variables& variables);

}  // namespace marea
