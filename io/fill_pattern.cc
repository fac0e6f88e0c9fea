#include "io/fill_pattern.h"

#include <cstring>

namespace marea {

void FillPattern(std::byte* data, uint64_t bytes) {
  uint64_t state = 0x9e3779b97f4a7c15;
  for (uint64_t at = 0; at < bytes; at += sizeof(state)) {
    state ^= state << 13;  // Marsaglia's xorshift
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(data + at, &state, sizeof(state));
  }
}

}  // namespace marea
