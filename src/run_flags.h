// The flags that `train` and `plan` share.
//
// Owner: the command. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "engine/train/run_options.h"
#include "io/status.h"
#include "src/arguments.h"

namespace marea {

// As written; an empty text was not given.
struct RunFlags {
  std::string model, data, config, output;
  std::string sequence_length, steps, epochs, micro_batch, learning_rate;
  std::string eval_data, eval_every;
  std::string device, optimizer_device, vram, ram, slots, wave;
  std::vector<std::string> nvme;
  std::string seed, threads, rank_timeout, stall_limit;
  bool deterministic = false;
  bool json = false;
};

// `flags` outlives `set`.
void AddRunFlags(FlagSet& set, RunFlags& flags);

enum class OutputNeed : uint8_t { kNone, kFolder };

// InvalidArgument names the flag that is missing, has no sense, or contradicts another.
Result<RunOptions> ToRunOptions(const RunFlags& flags, OutputNeed output);

}  // namespace marea
