// The keys of a DeepSpeed file: where each stands, what kind of value it takes, and, if it has no
// effect in marea, why.
//
// Names, aliases and deprecated names are those of deepspeed/runtime/config.py, constants.py,
// zero/config.py, zero/offload_config.py and precision_config.py. Constant tables; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace marea {

enum class KeyKind : uint8_t {
  kFlag,    // true or false
  kCount,   // a whole number, 0 or more; 5e8 is one
  kNumber,  // a finite number
  kText,
  kObject,
  kAny,  // not looked at
};

struct KeySpec {
  std::string_view name;
  KeyKind kind;
  std::string_view no_effect = {};  // the reason; empty: the key is used
};

struct SectionSpec {
  std::string_view path;  // "" is the top level
  std::span<const KeySpec> keys;
};

inline constexpr std::string_view kTopLevel = "";
inline constexpr std::string_view kZero = "zero_optimization";
inline constexpr std::string_view kOffloadParam = "zero_optimization.offload_param";
inline constexpr std::string_view kOffloadOptimizer = "zero_optimization.offload_optimizer";
inline constexpr std::string_view kOptimizer = "optimizer";
inline constexpr std::string_view kOptimizerParams = "optimizer.params";
inline constexpr std::string_view kScheduler = "scheduler";
inline constexpr std::string_view kSchedulerParams = "scheduler.params";
inline constexpr std::string_view kBf16 = "bf16";
inline constexpr std::string_view kFp16 = "fp16";
inline constexpr std::string_view kDataTypes = "data_types";
inline constexpr std::string_view kAio = "aio";

// REQUIRES: `path` is one of the above.
std::span<const KeySpec> KeysOf(std::string_view path);

// For a key that `path` does not have: what the user probably meant, as the end of a sentence: that
// it belongs elsewhere, or the nearest key of the section. Empty if nothing is near.
std::string SuggestKey(std::string_view path, std::string_view key);

// Least number of insertions, deletions, replacements and swaps of neighbours.
uint32_t EditDistance(std::string_view a, std::string_view b);

// "in zero_optimization", or "at the top level".
std::string SectionName(std::string_view path);

}  // namespace marea
