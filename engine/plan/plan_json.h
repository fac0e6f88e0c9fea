// plan.json: a planned run as a file, for people, tools and `marea inspect`.
//
// One object: what was planned (spec, placement, bytes by tier) and the step plan itself, one ring,
// buffer and op a line, so that two plans can be compared with diff. docs/output-files.md explains
// every key. Keys that hold their default are left out of ops. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/plan/planner.h"
#include "io/status.h"
#include "swap/step_plan.h"

namespace marea {

inline constexpr const char* kPlanFormat = "marea-plan";
inline constexpr uint32_t kPlanFormatVersion = 1;

// Ends in a newline. `step_estimate` is a JSON value to hold under that key; empty: no such key.
std::string ToJson(const PlannedRun& planned, const std::string& step_estimate = {});

// What a plan.json holds.
struct PlanFile {
  std::string precision;  // "bf16" or "fp32"
  uint64_t parameters = 0;
  uint32_t micro_count = 0;
  uint32_t wave_size = 0;
  uint64_t chunk_elements = 0;
  TierKindBytes homes{};
  std::array<uint64_t, kTierCount> peak_bytes{};  // predicted, by Tier
  StepPlan plan;
};

// InvalidArgument for text that is not such a file, or of another version, or whose indices point
// nowhere; the sentence names `origin` and the place. The plan that comes back is consistent in
// itself, but has not been proved (swap/plan_check.h).
Result<PlanFile> ParsePlan(const std::string& text, const std::string& origin);

}  // namespace marea
