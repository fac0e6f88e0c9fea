// Measures what a step's time depends on apart from drives: RAM, optimizer, processor, GPU and the
// link to it.
//
// Thread rule: the main thread, once in a process (it starts torch). Blocks for about the given
// seconds times the number of figures that this machine can give.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "engine/plan/machine_profile.h"
#include "io/status.h"

namespace marea {

struct MachineSpeedOptions {
  double seconds = 5;                                // of each figure
  const std::atomic<bool>* stop = nullptr;           // set: Cancelled
  std::function<void(const std::string&)> announce;  // what is measured from now on
  std::optional<double> all_gather;                  // measured before, with the other ranks
};

// A profile without drives. What this machine or build does not have, or has no room for, is absent
// with its reason; a wrong result, a failure of the GPU or Cancelled is the failure of all.
Result<MachineProfile> MeasureMachine(const MachineSpeedOptions& options);

}  // namespace marea
