// Whether a sum begins or goes on.
#pragma once

#include <cstdint>

namespace marea {

// Does this micro-batch begin the step's sum or add to it? kFirst writes every element of an
// accumulator, padding included, and reads none.
enum class Accumulate : uint8_t { kFirst, kAdd };

}  // namespace marea
