// A machine profile out of a benchmark: its drives from results, and its table for people.
//
// Pure functions.
#pragma once

#include <span>
#include <string>

#include "engine/plan/machine_profile.h"
#include "io/status.h"
#include "src/bench/bench_session.h"

namespace marea {

// Puts the rates of reading, writing and both into `profile`: each path alone, then, where there
// are several, side by side. InvalidArgument if nothing completed within the time. REQUIRES: each
// path, and several together, have a result of kRead, kWrite and kMixed.
Status AddDrives(std::span<const PathFacts> paths, std::span<const BenchResult> results,
                 MachineProfile* profile);

// A line for each figure, with its unit, then the reason for each that is absent. Drives are in the
// table of results.
std::string MachineText(const MachineProfile& profile);

}  // namespace marea
