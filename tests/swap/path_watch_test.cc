#include "swap/path_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "swap/path_meter.h"
#include "tests/swap/tier_store_fixture.h"

namespace marea {
namespace {

TEST(PathMeterTest, BusyIsTheUnionOfTransfersEachWay) {
  double now = 0;
  PathMeter meter([&now] { return now; });
  meter.OnBegin(IoDirection::kRead);
  now = 1;
  meter.OnBegin(IoDirection::kRead);
  meter.OnBegin(IoDirection::kWrite);
  now = 3;
  meter.OnEnd(IoDirection::kRead, 100);
  EXPECT_EQ(meter.Snapshot()[0].busy_seconds, 3);  // one is on its way
  now = 4;
  meter.OnEnd(IoDirection::kRead, 50);
  now = 9;
  meter.OnEnd(IoDirection::kWrite, 0);
  now = 20;
  const PathFlows flows = meter.Snapshot();
  EXPECT_EQ(flows[0].bytes, 150u);
  EXPECT_EQ(flows[0].busy_seconds, 4);
  EXPECT_EQ(flows[1].bytes, 0u);
  EXPECT_EQ(flows[1].busy_seconds, 8);
}

// A run of many steps whose drives do what the test says.
class PathWatchTest : public ::testing::Test {
 protected:
  PathWatchTest() : watch_({"/a", "/b"}) {
    sample_.flows.resize(2);
    watch_.Begin(sample_);
  }
  // Steps of two seconds in which each path is busy one second each way.
  std::vector<std::string> Steps(int count, double a_reads, double b_reads, double stalled = 0) {
    std::vector<std::string> said;
    for (int i = 0; i < count; ++i) {
      const double rates[2][2] = {{a_reads, 1e9}, {b_reads, 1e9}};
      for (size_t path = 0; path < 2; ++path) {
        for (size_t way = 0; way < 2; ++way) {
          sample_.flows[path][way].bytes += static_cast<uint64_t>(rates[path][way]);
          sample_.flows[path][way].busy_seconds += 1;
        }
      }
      sample_.stalls[static_cast<size_t>(Lane::kNvmeRead)] += stalled;
      sample_.seconds += 2;
      for (std::string& sentence : watch_.OnStep(sample_)) said.push_back(std::move(sentence));
    }
    return said;
  }

  PathWatch watch_;
  PathSample sample_;
};

TEST_F(PathWatchTest, ASteadyPathIsNotNamed) {
  EXPECT_TRUE(Steps(1000, 3e9, 2e9).empty());
}

TEST_F(PathWatchTest, ASlowPathIsNamedOnceWithItsFigures) {
  (void)Steps(20, 3e9, 2.1e9);
  const auto said = Steps(500, 3e9, 0.4e9, 1.0);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0],
            "NVMe path /b reads 400 MB/s now, 2.10 GB/s at the start: the run waits for it");
}

TEST_F(PathWatchTest, ThatTheRunWaitsIsSaidOnlyIfItDoes) {
  (void)Steps(20, 3e9, 2.1e9);
  const auto said = Steps(500, 3e9, 0.4e9, 0.01);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("does not wait"), std::string::npos) << said[0];
}

TEST_F(PathWatchTest, AHiccupIsNoChange) {
  (void)Steps(20, 3e9, 2e9);
  EXPECT_TRUE(Steps(1, 3e9, 0.1e9).empty());
  EXPECT_TRUE(Steps(50, 3e9, 2e9).empty());
}

TEST_F(PathWatchTest, AHalfIsWhereSlowBegins) {
  (void)Steps(20, 3e9, 2e9);
  EXPECT_TRUE(Steps(100, 3e9, 1.1e9).empty());
  EXPECT_EQ(Steps(100, 3e9, 0.9e9).size(), 1u);
}

TEST_F(PathWatchTest, AFurtherHalvingAndTheReturnAreTold) {
  (void)Steps(20, 3e9, 2e9);
  EXPECT_EQ(Steps(100, 3e9, 0.8e9).size(), 1u);
  EXPECT_TRUE(Steps(100, 3e9, 0.7e9).empty());
  EXPECT_TRUE(Steps(100, 3e9, 1.2e9).empty());  // between slow and recovered: nothing new
  EXPECT_EQ(Steps(100, 3e9, 0.3e9).size(), 1u);
  const auto back = Steps(100, 3e9, 1.9e9);
  ASSERT_EQ(back.size(), 1u);
  EXPECT_NE(back[0].find("/b reads 1.90 GB/s again"), std::string::npos) << back[0];
  EXPECT_EQ(Steps(100, 3e9, 0.8e9).size(), 1u);
}

TEST_F(PathWatchTest, APathThatComesAndGoesIsNoFlood) {
  std::vector<std::string> said;
  (void)Steps(20, 3e9, 2e9);
  for (int i = 0; i < 100; ++i) {
    for (const double rate : {0.5e9, 2e9}) {
      for (std::string& sentence : Steps(10, 3e9, rate)) said.push_back(std::move(sentence));
    }
  }
  ASSERT_EQ(said.size(), PathWatchOptions{}.said_max);
  EXPECT_NE(said.back().find("for the last time"), std::string::npos) << said.back();
}

TEST_F(PathWatchTest, BothPathsAreNamed) {
  (void)Steps(20, 3e9, 2e9);
  const auto said = Steps(100, 0.3e9, 0.2e9, 1.0);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[0].find("/a"), std::string::npos);
  EXPECT_NE(said[1].find("/b"), std::string::npos);
}

TEST_F(PathWatchTest, WhatIsNoStepDoesNotCount) {
  (void)Steps(20, 3e9, 2e9);
  // An evaluation that reads slowly for an hour.
  sample_.flows[1][0].bytes += 1000;
  sample_.flows[1][0].busy_seconds += 3600;
  sample_.seconds += 3600;
  watch_.Begin(sample_);
  EXPECT_TRUE(Steps(100, 3e9, 2e9).empty());
}

TEST_F(PathWatchTest, AnIdlePathIsNotNamed) {
  (void)Steps(20, 3e9, 2e9);
  for (int i = 0; i < 100; ++i) {
    sample_.seconds += 2;
    EXPECT_TRUE(watch_.OnStep(sample_).empty());
  }
}

// A store over a simulated drive that becomes slow: what the meter counted names it.
class MeteredStoreTest : public TierStoreTest {
 protected:
  static constexpr uint32_t kGroups = 8;
  double Now() const { return static_cast<double>(clock_.now()) * 1e-9; }

  // The store and its drive; `nanoseconds` is what each request takes.
  void MakeMetered(uint64_t nanoseconds) {
    FaultyDeviceOptions options;
    options.latency_min = options.latency_max = nanoseconds;
    Make(SomeChunks(kGroups), 2, options);
    store_ = std::make_unique<TierStore>(table_, layout_.paths[0], 2, *device_, 0,
                                         TierStoreOptions{.meter = &meter_});
  }
  // All chunks written, then read, as a step does.
  void Step() {
    for (uint32_t chunk = 0; chunk < table_.entries.size(); ++chunk) {
      ASSERT_TRUE(Write(chunk, chunk).ok());
      ExpectHolds(chunk, chunk);
    }
  }
  PathSample Sample() const { return {{meter_.Snapshot()}, {}, Now()}; }

  PathMeter meter_{[this] { return Now(); }};
};

TEST_F(MeteredStoreTest, ADriveThatBecomesSlowIsNamedEachWay) {
  PathWatch watch({"/nvme/a"}, {.window_busy_seconds = 0.01});
  MakeMetered(100'000);
  watch.Begin(Sample());
  for (int i = 0; i < 30; ++i) {
    Step();
    ASSERT_TRUE(watch.OnStep(Sample()).empty());
  }
  MakeMetered(1'000'000);
  std::vector<std::string> said;
  for (int i = 0; i < 30; ++i) {
    Step();
    for (std::string& sentence : watch.OnStep(Sample())) said.push_back(std::move(sentence));
  }
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[0].find("/nvme/a reads"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("/nvme/a writes"), std::string::npos) << said[1];
}

TEST_F(MeteredStoreTest, CountsWholePagesOfWhatArrivedAndNothingOfWhatFailed) {
  MakeMetered(100'000);
  ASSERT_TRUE(Write(0, 1).ok());
  EXPECT_EQ(meter_.Snapshot()[1].bytes, RoundUp(table_.entries[0].id.bytes, kPageBytes));
  device_->FailRange(0, IoDirection::kWrite, home(1).slot_offset[0], kPageBytes, EIO,
                     FaultCount::kAlways);
  EXPECT_FALSE(Write(1, 1).ok());
  EXPECT_FALSE(Write(2, 1).ok());  // the store has failed: never under way
  const PathFlows flows = meter_.Snapshot();
  EXPECT_EQ(flows[1].bytes, RoundUp(table_.entries[0].id.bytes, kPageBytes));
  const double busy = flows[1].busy_seconds;
  clock_.AdvanceTo(clock_.now() + 1'000'000'000);
  EXPECT_EQ(meter_.Snapshot()[1].busy_seconds, busy) << "something is still counted as in flight";
}

}  // namespace
}  // namespace marea
