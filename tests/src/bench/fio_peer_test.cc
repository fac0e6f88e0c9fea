// What fio is asked for and what is taken from its answer.
#include "src/bench/fio_peer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "io/units.h"

namespace marea {
namespace {

TEST(FioPeerTest, FioIsAskedForTheSameWork) {
  const std::vector<std::string> words = FioArguments({.program = "/usr/bin/fio",
                                                       .file_name = "/proc/1/fd/5",
                                                       .file_bytes = 4 * kGiB,
                                                       .kind = WorkloadKind::kMixed,
                                                       .shape = {kMiB, 32},
                                                       .warm_up_seconds = 0.3,
                                                       .seconds = 1.5,
                                                       .huge_pages = true});
  EXPECT_EQ(words.front(), "/usr/bin/fio");
  for (const char* word :
       {"--filename=/proc/1/fd/5", "--size=4294967296", "--bs=1048576", "--iodepth=32", "--rw=rw",
        "--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1", "--direct=1",
        "--ramp_time=300ms", "--runtime=1500ms", "--scramble_buffers=0", "--output-format=json",
        "--iomem=mmaphuge"}) {
    EXPECT_NE(std::find(words.begin(), words.end(), word), words.end()) << word;
  }
}

TEST(FioPeerTest, RatesOfBothDirectionsAndProcessorTimeAreTaken) {
  const Result<FioFigure> figure = ParseFioOutput(
      "note: something\n{\"jobs\": [{\"read\": {\"bw_bytes\": 1000000000}, \"write\": "
      "{\"bw_bytes\": "
      "1000000000}, \"usr_cpu\": 1.0, \"sys_cpu\": 3.0}]}");
  ASSERT_TRUE(figure.ok()) << figure.status().message();
  EXPECT_DOUBLE_EQ(figure.value().bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(figure.value().cpu_core_ms_per_gb, 20);
}

TEST(FioPeerTest, AnAnswerWithoutFiguresIsAFailure) {
  for (const char* text : {"", "fio: pid=0, err=1\nmore", "{\"jobs\": []}", "{\"jobs\": [3]}", "{",
                           "{\"jobs\": [{\"read\": {\"bw_bytes\": 0}}]}"}) {
    const Result<FioFigure> figure = ParseFioOutput(text);
    ASSERT_FALSE(figure.ok()) << text;
    EXPECT_EQ(figure.status().code(), ErrorCode::kFailed);
  }
  EXPECT_NE(ParseFioOutput("fio: pid=0, err=1\nmore").status().message().find("err=1"),
            std::string::npos);
}

TEST(FioPeerTest, TheRatioIsThatOfTheMedians) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  FioComparison comparison;
  EXPECT_EQ(comparison.ratio(), 0);
  comparison.marea_rates = {1, 3, 2};
  comparison.fio_rates = {4, 4, 100};
  EXPECT_DOUBLE_EQ(comparison.ratio(), 0.5);
}

}  // namespace
}  // namespace marea
