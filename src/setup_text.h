// What a prepared run tells its user before it starts. Shared by `train` and `plan`.
//
// Thread rule: one thread.
#pragma once

#include "engine/plan/plan_text.h"
#include "engine/train/run_setup.h"

namespace marea {

TierBytes BudgetBytes(const RunSetup& setup);

// Its warnings and notices, each once, on stderr.
void PrintFindings(const RunSetup& setup);

}  // namespace marea
