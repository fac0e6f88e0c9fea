// UTF-8 validity over a stream of pieces.
//
// Thread rule: one thread per checker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace marea {

// Accepts exactly RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
class Utf8Checker {
 public:
  // False from the first invalid byte on; bad_offset() then says where it is.
  bool Add(std::span<const std::byte> piece);
  // False if the stream ends within a character.
  bool Finish();

  uint64_t bad_offset() const { return bad_offset_; }  // valid once Add or Finish returned false
  bool has_nul() const { return has_nul_; }

 private:
  bool Step(uint8_t byte);

  uint64_t offset_ = 0;  // of the next byte
  uint64_t bad_offset_ = 0;
  uint32_t pending_ = 0;  // continuation bytes that the current character still needs
  uint8_t low_ = 0x80;    // range of the next continuation byte
  uint8_t high_ = 0xBF;
  bool ok_ = true;
  bool has_nul_ = false;
};

}  // namespace marea
