#include "engine/data/data_order.h"

#include <algorithm>
#include <bit>

#include "io/check.h"

namespace marea {
namespace {

// The finalizer of splitmix64 (Steele, Lea and Flood 2014): every bit of the input reaches every
// bit of the output.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

DataOrder::DataOrder(uint64_t samples, uint64_t seed, uint64_t pass) : samples_(samples) {
  MAREA_CHECK(samples > 0 && samples <= (uint64_t{1} << 62), "a pass has 1 to 2^62 samples");
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(samples - 1)) + 1) / 2);
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // splitmix64's increment
  // Two rounds of mixing keep (seed, pass) and (seed + 1, pass - 1) apart.
  uint64_t state = Mix(Mix(seed + kGolden) + pass * kGolden + 1);
  for (uint64_t& key : keys_) key = Mix(state += kGolden);
}

uint64_t DataOrder::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (Mix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t DataOrder::At(uint64_t position) const {
  MAREA_CHECK(position < samples_, "a position beyond the pass");
  // The walk returns to [0, samples) because the orbit of `position` does.
  uint64_t value = Encrypt(position);
  while (value >= samples_) value = Encrypt(value);
  return value;
}

}  // namespace marea
