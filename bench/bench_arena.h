// What the benchmarks of io and swap share: memory as a run has it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "io/pinned_arena.h"
#include "io/units.h"

namespace marea {

// Whole pages that have been touched; ends the program if there is no such memory.
inline PinnedArena MakeArena(uint64_t bytes) {
  ArenaOptions options;
  options.bytes = RoundUp(std::max<uint64_t>(bytes, 1), kPageBytes);
  return PinnedArena::Create(options).value();
}

}  // namespace marea
