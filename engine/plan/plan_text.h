// A planned run for people: what rests where, how far the lanes run ahead, what a step does.
// Pure functions; every text ends in a newline.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/plan/plan_json.h"
#include "engine/plan/planner.h"
#include "engine/plan/step_estimate.h"

namespace marea {

using TierBytes = std::array<uint64_t, kTierCount>;  // by Tier

// Budget, predicted peak and homes of each tier, by kind. A few lines.
std::string PlacementTable(const PlannedRun& planned, const TierBytes& budget_bytes);

// The whole picture of `marea plan`: the placement, the rings, and each lane's ops and bytes in a
// steady step, with its time where there is an estimate (null: none).
std::string PlanTable(const PlannedRun& planned, const TierBytes& budget_bytes,
                      const StepEstimate* estimate = nullptr);

// The same of a file; it holds no budgets.
std::string PlanTable(const PlanFile& file);

// Every op of a turn, one a line, in program order.
std::string OpsText(const StepPlan& plan);

}  // namespace marea
