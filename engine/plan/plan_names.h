// Names of plan.json's values that swap has no names for. Pure functions.
#pragma once

#include "engine/model/model_shape.h"
#include "swap/step_plan.h"

namespace marea {

inline constexpr int kWhenCount = 6;
constexpr const char* WhenName(When when) {
  constexpr const char* kNames[kWhenCount] = {"always",   "if_update", "if_forward",
                                              "if_train", "if_eval",   "if_no_update"};
  return kNames[static_cast<int>(when)];
}

// "r", "w" or "rw"; modes are bits, and 0 is none of them.
inline constexpr int kAccessModeCount = 4;
constexpr const char* AccessModeName(AccessMode mode) {
  constexpr const char* kNames[kAccessModeCount] = {"", "r", "w", "rw"};
  return kNames[static_cast<int>(mode)];
}

constexpr const char* PrecisionName(Precision precision) {
  return precision == Precision::kBf16 ? "bf16" : "fp32";
}

constexpr const char* BlockKindName(BlockKind kind) {
  constexpr const char* kNames[] = {"embedding", "layer", "head"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace marea
