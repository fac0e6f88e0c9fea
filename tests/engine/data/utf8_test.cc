#include "engine/data/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace marea {
namespace {

// Fed in pieces of `piece` bytes.
bool Valid(const std::string& text, size_t piece, uint64_t* bad = nullptr) {
  Utf8Checker checker;
  bool ok = true;
  for (size_t at = 0; at < text.size() && ok; at += piece) {
    const std::string part = text.substr(at, piece);
    ok = checker.Add(std::as_bytes(std::span(part.data(), part.size())));
  }
  ok = ok && checker.Finish();
  if (!ok && bad != nullptr) *bad = checker.bad_offset();
  return ok;
}

std::string Encode(uint32_t code, int bytes) {
  if (bytes == 1) return std::string(1, static_cast<char>(code));
  std::string text;
  for (int i = 0; i < bytes - 1; ++i) {
    text.insert(text.begin(), static_cast<char>(0x80 | (code & 0x3F)));
    code >>= 6;
  }
  const uint32_t lead = bytes == 2 ? 0xC0 : bytes == 3 ? 0xE0 : 0xF0;
  text.insert(text.begin(), static_cast<char>(lead | code));
  return text;
}

// Every code point in every length that can hold it, against the definition.
TEST(Utf8, AgreesWithTheDefinitionOnEveryCodePoint) {
  const uint32_t limits[] = {0x80, 0x800, 0x10000, 0x200000};
  for (int bytes = 1; bytes <= 4; ++bytes) {
    for (uint32_t code = 0; code < limits[bytes - 1]; ++code) {
      const bool shortest = bytes == 1 || code >= limits[bytes - 2];
      const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
      const bool expected = shortest && !surrogate && code <= 0x10FFFF;
      ASSERT_EQ(Valid(Encode(code, bytes), 4), expected) << std::hex << code << " in " << bytes;
    }
  }
}

TEST(Utf8, OffsetsAndPieces) {
  const std::string good =
      "plain text of more than eight bytes, caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x8C\x8A";
  for (size_t piece = 1; piece <= good.size(); ++piece) {
    EXPECT_TRUE(Valid(good, piece)) << piece;
    uint64_t bad = 0;
    EXPECT_FALSE(Valid(good + "0123456789\xFFtail", piece, &bad));
    EXPECT_EQ(bad, good.size() + 10) << piece;
    EXPECT_FALSE(Valid(good + "\xE2\x82", piece, &bad));
    EXPECT_EQ(bad, good.size() + 2) << piece;
  }
}

TEST(Utf8, SeesNulWhereverItStands) {
  for (size_t at = 0; at < 20; ++at) {
    std::string text(20, 'a');
    Utf8Checker none;
    EXPECT_TRUE(none.Add(std::as_bytes(std::span(text.data(), text.size()))));
    EXPECT_FALSE(none.has_nul());
    text[at] = '\0';
    Utf8Checker checker;
    EXPECT_TRUE(checker.Add(std::as_bytes(std::span(text.data(), text.size()))));
    EXPECT_TRUE(checker.has_nul()) << at;
  }
}

}  // namespace
}  // namespace marea
