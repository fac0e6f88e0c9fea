// Counts calls of operator new, which allocation_count.cc replaces for the whole executable.
#pragma once

#include <atomic>
#include <cstdint>

namespace marea {

inline std::atomic<uint64_t> allocation_count{0};

}  // namespace marea
