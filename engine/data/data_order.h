// The order of the samples in a pass: a permutation that is computed, never stored.
//
// Permutation(seed, pass) is a bijection on [0, samples) with random access: a Feistel network
// (Luby and Rackoff 1988) over the next power of four, keyed by seed and pass, and walked along its
// cycles until it lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
// The domain is less than four times the samples, so a look-up walks four steps on average. Any
// rank, at any step, after any restart, finds the same sample without history.
//
// Plain value; any thread.
#pragma once

#include <array>
#include <cstdint>

namespace marea {

class DataOrder {
 public:
  // REQUIRES: samples > 0 and samples <= 2^62.
  DataOrder(uint64_t samples, uint64_t seed, uint64_t pass);

  // The sample at `position` of the pass. REQUIRES: position < samples.
  uint64_t At(uint64_t position) const;

 private:
  static constexpr int kRounds = 8;
  uint64_t Encrypt(uint64_t value) const;

  uint64_t samples_;
  uint32_t half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace marea
