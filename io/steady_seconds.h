// Seconds since some moment in the past, on a clock that only goes forward. Any thread.
#pragma once

#include <chrono>

namespace marea {

inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace marea
