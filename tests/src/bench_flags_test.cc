// The flags of `marea bench`: names, values and contradictions, each refusal one sentence.
#include "src/bench_flags.h"

#include <gtest/gtest.h>

#include "io/units.h"
#include "src/arguments.h"

namespace marea {
namespace {

Result<BenchRun> ParseBench(const std::vector<std::string>& words) {
  BenchFlags flags;
  FlagSet set("marea bench", "");
  AddBenchFlags(set, flags);
  const Result<ParseOutcome> outcome = set.Parse(SpreadNvmePaths(words));
  if (!outcome.ok()) return outcome.status();
  return ToBenchRun(flags);
}

TEST(BenchFlagsTest, DefaultsMeasureEverything) {
  const BenchRun run = ParseBench({"--nvme", "a"}).value();
  EXPECT_EQ(run.folders, std::vector<std::string>{"a"});
  EXPECT_EQ(run.kinds.size(), 4u);
  EXPECT_EQ(run.shape.block_bytes, kMiB);
  EXPECT_EQ(run.shape.queue_depth, 32u);
  EXPECT_EQ(run.file_bytes, 4 * kGiB);
  EXPECT_EQ(run.seconds, 5);
  EXPECT_FALSE(run.mode.has_value());
  EXPECT_FALSE(run.all);
}

TEST(BenchFlagsTest, PathsMayFollowOneFlagOrSeveral) {
  const std::vector<std::string> both = {"a", "b"};
  EXPECT_EQ(ParseBench({"--nvme", "a", "b", "--json"}).value().folders, both);
  EXPECT_EQ(ParseBench({"--nvme", "a", "--json", "--nvme", "b"}).value().folders, both);
  EXPECT_EQ(ParseBench({"--nvme=a", "--nvme=b"}).value().folders, both);
}

TEST(BenchFlagsTest, FiosNamesAreTaken) {
  const BenchRun run = ParseBench({"--nvme", "a", "--bs=256K", "--iodepth", "8", "--runtime", "30s",
                                   "--rw", "rw,randread", "--ioengine=io_uring", "--size", "1G"})
                           .value();
  EXPECT_EQ(run.shape.block_bytes, 256 * kKiB);
  EXPECT_EQ(run.shape.queue_depth, 8u);
  EXPECT_EQ(run.seconds, 30);
  EXPECT_EQ(run.kinds,
            (std::vector<WorkloadKind>{WorkloadKind::kMixed, WorkloadKind::kRandomRead}));
  EXPECT_EQ(run.mode, IoMode::kUringRegistered);
  EXPECT_EQ(run.file_bytes, kGiB);
}

TEST(BenchFlagsTest, ASweepAndAReplayHaveTheirOwnDefaults) {
  const BenchRun sweep = ParseBench({"--nvme", "a", "--sweep"}).value();
  EXPECT_EQ(sweep.seconds, 1);
  EXPECT_EQ(sweep.kinds.size(), 3u);
  const BenchRun replay = ParseBench({"--nvme", "a", "--replay", "plan.json"}).value();
  EXPECT_TRUE(replay.kinds.empty());
}

TEST(BenchFlagsTest, RatesAreInBytesASecond) {
  EXPECT_EQ(ParseBench({"--nvme", "a", "--require", "300MB/s"}).value().require_bytes_per_second,
            3e8);
  EXPECT_EQ(ParseRate("--require", "2GiB/s").value(), 2.0 * kGiB);
  EXPECT_EQ(ParseRate("--require", "1.5G").value(), 1.5 * kGiB);
}

TEST(BenchFlagsTest, AllNeedsNoDrive) {
  const BenchRun bare = ParseBench({"--all", "--machine-profile", "m.json"}).value();
  EXPECT_TRUE(bare.all);
  EXPECT_TRUE(bare.folders.empty());
  EXPECT_EQ(bare.machine_profile_path, "m.json");
  const BenchRun drives = ParseBench({"--all", "--nvme", "a", "b", "--require", "1GB/s"}).value();
  EXPECT_EQ(drives.folders.size(), 2u);
  EXPECT_EQ(drives.kinds, (std::vector<WorkloadKind>{WorkloadKind::kRead, WorkloadKind::kWrite,
                                                     WorkloadKind::kMixed}));
  EXPECT_FALSE(ParseBench({"--nvme", "a"}).value().all);
}

TEST(BenchFlagsTest, AnEnduranceRatingIsASize) {
  const auto rating = [](const std::string& text) {
    return ParseBench({"--nvme", "a", "--endurance-rating", text}).value().endurance_rating_bytes;
  };
  EXPECT_EQ(rating("600TB"), 600'000'000'000'000u);
  EXPECT_EQ(rating("600TBW"), 600'000'000'000'000u);
  EXPECT_EQ(rating("1.5PB"), 1'500'000'000'000'000u);
  EXPECT_FALSE(ParseBench({"--nvme", "a"}).value().endurance_rating_bytes.has_value());
  EXPECT_TRUE(ParseBench({"--nvme", "a", "--replay", "p", "--endurance-rating", "1TB"}).ok());
  EXPECT_TRUE(ParseBench({"--nvme", "a", "--rw", "write", "--endurance-rating", "1TB"}).ok());
}

TEST(BenchFlagsTest, WhatHasNoSenseIsRefusedInOneSentence) {
  struct Case {
    std::vector<std::string> words;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {{}, {"--nvme PATH"}},
      {{"--nvme", "a", "--size", "8MiB"}, {"--size 8MiB", "64.0 MiB"}},
      {{"--nvme", "a", "--size", "0"}, {"--size 0", "4096"}},
      {{"--nvme", "a", "--bs", "512"}, {"--block-size 512", "nearest above is 4096"}},
      {{"--nvme", "a", "--bs", "1000"}, {"--block-size 1000", "4096"}},
      {{"--nvme", "a", "--bs", "2GiB"}, {"--block-size 2GiB", "1.00 GiB"}},
      {{"--nvme", "a", "--bs", "many"}, {"--block-size", "many"}},
      {{"--nvme", "a", "--iodepth", "0"}, {"--queue-depth 0", "1 to 4096"}},
      {{"--nvme", "a", "--seconds", "0"}, {"--seconds 0", "above 0"}},
      {{"--nvme", "a", "--seconds", "s"}, {"--seconds s"}},
      {{"--nvme", "a", "--give-up", "-1"}, {"--give-up -1"}},
      {{"--nvme", "a", "--rw", "read,trim"}, {"--workload trim", "random_read"}},
      {{"--nvme", "a", "--require", "fast"}, {"--require fast", "2GB/s"}},
      {{"--nvme", "a", "--require", "0"}, {"--require 0"}},
      {{"--nvme", "a", "--io", "libaio"}, {"--io libaio", "threads"}},
      {{"--nvme", "a", "--compare", "dd"}, {"--compare dd", "fio"}},
      {{"--nvme", "a", "b", "--compare", "fio"}, {"--compare fio takes one --nvme path"}},
      {{"--nvme", "a", "--sweep", "--replay", "x"}, {"--sweep and --replay"}},
      {{"--nvme", "a", "--sweep", "--bs", "1M"}, {"--sweep", "--block-size"}},
      {{"--nvme", "a", "--blocksize", "1M"}, {"--blocksize", "--block-size"}},
      {{"a", "--nvme"}, {"'a'"}},
      {{"--nvme", "a", "--machine-profile", "m"}, {"--machine-profile", "add --all"}},
      {{"--all", "--nvme", "a", "--rw", "read"}, {"--all", "leave out --workload"}},
      {{"--all", "--nvme", "a", "--sweep"}, {"--all", "leave out --sweep"}},
      {{"--all", "--nvme", "a", "--replay", "x"}, {"--all", "leave out --replay"}},
      {{"--all", "--nvme", "a", "--compare", "fio"}, {"--all", "leave out --compare"}},
      {{"--all", "--require", "1GB/s"}, {"--require", "--nvme PATH"}},
      {{"--all", "--endurance-rating", "1TB"}, {"--endurance-rating", "--nvme PATH"}},
      {{"--nvme", "a", "--endurance-rating", "much"}, {"--endurance-rating much", "600TB"}},
      {{"--nvme", "a", "--endurance-rating", "0"}, {"--endurance-rating 0", "600TB"}},
      {{"--nvme", "a", "--endurance-rating", "W"}, {"--endurance-rating W"}},
      {{"--nvme", "a", "--sweep", "--endurance-rating", "1TB"}, {"--endurance-rating", "--sweep"}},
      {{"--nvme", "a", "--rw", "read", "--endurance-rating", "1TB"},
       {"--endurance-rating", "--workload", "--replay"}},
  };
  for (const Case& each : cases) {
    const Result<BenchRun> run = ParseBench(each.words);
    ASSERT_FALSE(run.ok()) << each.parts.front();
    EXPECT_EQ(run.status().code(), ErrorCode::kInvalidArgument);
    for (const std::string& part : each.parts) {
      EXPECT_NE(run.status().message().find(part), std::string::npos) << run.status().message();
    }
  }
}

}  // namespace
}  // namespace marea
