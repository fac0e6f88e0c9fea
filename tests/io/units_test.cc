#include "io/units.h"

#include <gtest/gtest.h>

namespace marea {
namespace {

struct Size {
  const char* text;
  uint64_t bytes;
};

TEST(UnitsTest, ReadsSizesAsPeopleWriteThem) {
  const Size sizes[] = {
      {"0", 0},
      {"4096", 4096},
      {"8GiB", 8 * kGiB},
      {"8G", 8 * kGiB},
      {"8g", 8 * kGiB},
      {" 8 GiB ", 8 * kGiB},
      {"1.5GiB", kGiB + kGiB / 2},
      {"500MB", 500'000'000},
      {"500mb", 500'000'000},
      {"64M", 64 * kMiB},
      {"4k", 4096},
      {"4kB", 4000},
      {"2T", 2048 * kGiB},
      {"1.2PB", 1'200'000'000'000'000},
      {"0.3kB", 300},
      {"2.3TB", 2'300'000'000'000},
      {"3e9", 3'000'000'000},                  // above 2^31
      {"9007199254740993", 9007199254740993},  // not a double
      {"18446744073709551615", UINT64_MAX},
      {"17179869183G", uint64_t{17179869183} << 30},
  };
  for (const Size& size : sizes) {
    const Result<uint64_t> parsed = ParseBytes(size.text);
    ASSERT_TRUE(parsed.ok()) << size.text << ": " << parsed.status().message();
    EXPECT_EQ(parsed.value(), size.bytes) << size.text;
  }
}

TEST(UnitsTest, RefusesWhatIsNoSizeAndNamesIt) {
  for (const char* text :
       {"", " ", "-1", "-8GiB", "GiB", "8X", "8GiBs", "nan", "inf", "0x10", "1e", "1.5", "40%",
        "1e30", "18446744073709551616", "17179869184G", "1,5G", "8 8"}) {
    const Result<uint64_t> parsed = ParseBytes(text);
    ASSERT_FALSE(parsed.ok()) << text << " was read as " << parsed.value();
    EXPECT_EQ(parsed.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.status().message().find(text), std::string::npos);
    EXPECT_NE(parsed.status().message().find("8GiB"), std::string::npos) << "no example";
  }
}

TEST(UnitsTest, WritesThreeDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(kGiB + kGiB / 2), "1.50 GiB");
  EXPECT_EQ(FormatBytes(512 * kMiB), "512 MiB");
  EXPECT_EQ(FormatBytes(kMiB - 1), "1.00 MiB");
  EXPECT_EQ(FormatBytes(kGiB * 10 - 1), "10.0 GiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16.0 EiB");
  EXPECT_EQ(FormatRate(3.21e9), "3.21 GB/s");
  EXPECT_EQ(FormatRate(999.9e6), "1.00 GB/s");
  EXPECT_EQ(FormatRate(0), "0 B/s");
  EXPECT_EQ(FormatRate(-1), "unknown rate");
}

TEST(UnitsTest, ReadsWhatItWrites) {
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{4096}, 3 * kGiB / 2, 512 * kMiB, kKiB * kGiB}) {
    EXPECT_EQ(ParseBytes(FormatBytes(bytes)).value(), bytes);
  }
}

}  // namespace
}  // namespace marea
