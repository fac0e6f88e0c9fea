#include "engine/data/utf8.h"

#include <cstring>

namespace marea {

bool Utf8Checker::Step(uint8_t byte) {
  if (pending_ > 0) {
    if (byte < low_ || byte > high_) return false;
    low_ = 0x80;
    high_ = 0xBF;
    --pending_;
    return true;
  }
  if (byte < 0x80) {
    has_nul_ |= byte == 0;
    return true;
  }
  if (byte < 0xC2 || byte > 0xF4) return false;  // a continuation, an overlong form, out of range
  pending_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  // The second byte excludes overlong forms, surrogates and what lies above U+10FFFF.
  if (byte == 0xE0) low_ = 0xA0;
  if (byte == 0xED) high_ = 0x9F;
  if (byte == 0xF0) low_ = 0x90;
  if (byte == 0xF4) high_ = 0x8F;
  return true;
}

bool Utf8Checker::Add(std::span<const std::byte> piece) {
  if (!ok_) return false;
  size_t at = 0;
  while (at < piece.size()) {
    // Eight ASCII bytes at once; a zero among them takes the slow way, to be seen.
    while (pending_ == 0 && at + 8 <= piece.size()) {
      uint64_t word;
      std::memcpy(&word, piece.data() + at, sizeof(word));
      constexpr uint64_t kHigh = 0x8080808080808080, kOnes = 0x0101010101010101;
      if ((word & kHigh) != 0 || ((word - kOnes) & kHigh) != 0) break;
      at += 8;
    }
    if (at == piece.size()) break;
    if (!Step(static_cast<uint8_t>(piece[at]))) {
      ok_ = false;
      bad_offset_ = offset_ + at;
      return false;
    }
    ++at;
  }
  offset_ += piece.size();
  return true;
}

bool Utf8Checker::Finish() {
  if (ok_ && pending_ > 0) {
    ok_ = false;
    bad_offset_ = offset_;
  }
  return ok_;
}

}  // namespace marea
