// How long a drive lasts, from what a step writes or from writing alone.
#include "src/bench/endurance.h"

#include <gtest/gtest.h>

namespace marea {
namespace {

constexpr uint64_t kTb = 1000ull * 1000 * 1000 * 1000;

TEST(Endurance, OfAReplayIsThatOfItsSteps) {
  const std::vector<std::string> paths = {"a", "b", "c"};
  const std::vector<uint64_t> bytes = {1'000'000'000, 250'000'000, 0};
  // 86400 seconds of two steps each.
  const std::vector<EnduranceEstimate> found = EnduranceOfReplay(paths, bytes, 2, 600 * kTb);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_DOUBLE_EQ(found[0].bytes_per_day, 172.8e12);
  EXPECT_DOUBLE_EQ(found[0].days().value(), 600 / 172.8);
  EXPECT_DOUBLE_EQ(found[1].days().value(), 4 * 600 / 172.8);
  EXPECT_FALSE(found[2].days().has_value());
  const nlohmann::ordered_json json = EnduranceJson(found);
  EXPECT_EQ(json[0]["path"], "a");
  EXPECT_EQ(json[0]["basis"], "replay");
  EXPECT_EQ(json[0]["step_write_bytes"], 1'000'000'000);
  EXPECT_EQ(json[0]["rating_bytes"], 600 * kTb);
  EXPECT_TRUE(json[2]["days"].is_null());
  const std::string text = EnduranceText(found);
  for (const char* part : {"a: 954 MiB a step, 173 TB written a day: 600 TB used up in 3.47 days",
                           "c: 0 B a step", "never used up", "a run writes no faster"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
  }
}

TEST(Endurance, OfWritingAloneIsTheWorstCase) {
  const EnduranceEstimate found = EnduranceOfWriting("a", 1e9, 600 * kTb);
  EXPECT_DOUBLE_EQ(found.bytes_per_day, 86.4e12);
  EXPECT_DOUBLE_EQ(found.days().value(), 600 / 86.4);
  const std::vector<EnduranceEstimate> one = {found};
  EXPECT_EQ(EnduranceJson(one)[0]["basis"], "write");
  EXPECT_TRUE(EnduranceJson(one)[0]["step_write_bytes"].is_null());
  EXPECT_NE(EnduranceText(one).find("the worst case"), std::string::npos) << EnduranceText(one);
}

TEST(Endurance, TimesAreInWordsThatFit) {
  const auto text = [](double rate) {
    const std::vector<EnduranceEstimate> one = {EnduranceOfWriting("a", rate, 600 * kTb)};
    return EnduranceText(one);
  };
  EXPECT_NE(text(20e9).find("in 8.3 hours"), std::string::npos) << text(20e9);
  EXPECT_NE(text(1e8).find("in 69.4 days"), std::string::npos) << text(1e8);
  EXPECT_NE(text(1e7).find("in 1.9 years"), std::string::npos) << text(1e7);
}

}  // namespace
}  // namespace marea
