#include "io/drive_speed.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/nvme_directory.h"
#include "io/region_stream.h"
#include "io/units.h"
#include "tests/fakes/faulty_block_device.h"
#include "tests/fakes/virtual_clock.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

constexpr uint64_t kRequest = 64 * kKiB;
constexpr uint64_t kSlots = 8;

// A drive that answers each request after the same time, so that its speed is known exactly.
class RegionStreamTest : public testing::Test {
 protected:
  void Make(uint64_t region_bytes, FaultyDeviceOptions options = {}) {
    options.file_bytes = {region_bytes};
    options.latency_min = options.latency_max = 100'000;
    options.bytes_per_nanosecond = 1.0;
    options.device.request_bytes = kRequest;
    device_ = std::make_unique<FaultyBlockDevice>(clock_, options);
    stream_ = std::make_unique<RegionStream>(
        *device_, std::span(static_cast<std::byte*>(memory_.get()), kSlots * kRequest),
        region_bytes, kRequest, [this] { return static_cast<double>(clock_.now()) * 1e-9; });
  }
  static double request_seconds() { return (100'000 + kRequest) * 1e-9; }
  static bool Never(const RegionStream::Moved& /*moved*/) { return false; }

  VirtualClock clock_;
  const std::unique_ptr<void, void (*)(void*)> memory_{
      std::aligned_alloc(kPageBytes, kSlots* kRequest), std::free};
  std::unique_ptr<FaultyBlockDevice> device_;
  std::unique_ptr<RegionStream> stream_;
};

TEST_F(RegionStreamTest, MeasuresASimulatedDriveExactly) {
  Make(4 * kSlots * kRequest);
  ASSERT_TRUE(stream_->Fill(Never).ok());
  for (const IoDirection direction : {IoDirection::kWrite, IoDirection::kRead}) {
    const auto moved = stream_->Run(direction, [&](const RegionStream::Moved& so_far) {
      return so_far.bytes >= 10 * stream_->round_bytes();
    });
    ASSERT_TRUE(moved.ok()) << moved.status().message();
    EXPECT_EQ(moved.value().bytes, 10 * stream_->round_bytes());
    EXPECT_NEAR(moved.value().rate(), kSlots * kRequest / request_seconds(), 1.0);
    EXPECT_EQ(device_->in_flight(), 0u);
  }
}

TEST_F(RegionStreamTest, FillsTheRegionOnceAndNoMore) {
  const uint64_t whole = 4 * kSlots * kRequest;
  Make(whole + kRequest);  // the rest is no whole round
  ASSERT_TRUE(stream_->Fill(Never).ok());
  EXPECT_EQ(stream_->region_bytes(), whole);
  EXPECT_EQ(device_->counters().write_bytes, whole);
}

TEST_F(RegionStreamTest, WhatThereIsNoTimeForIsNotInTheRegion) {
  Make(4 * kSlots * kRequest);
  const auto late = [&](const RegionStream::Moved& moved) {
    return moved.seconds >= 1.5 * request_seconds();
  };
  ASSERT_TRUE(stream_->Fill(late).ok());
  EXPECT_GE(stream_->region_bytes(), stream_->round_bytes());
  EXPECT_LT(stream_->region_bytes(), 4 * stream_->round_bytes());
  const uint64_t filled = stream_->region_bytes();
  EXPECT_LE(filled, device_->counters().write_bytes);
  // Reads stay within what was written: behind it the simulated file still holds zeros.
  ASSERT_TRUE(stream_
                  ->Run(IoDirection::kRead,
                        [&](const RegionStream::Moved& moved) { return moved.bytes >= 3 * filled; })
                  .ok());
}

TEST_F(RegionStreamTest, ARegionSmallerThanItsMemoryUsesFewerSlots) {
  Make(3 * kRequest);
  ASSERT_TRUE(stream_->Fill(Never).ok());
  EXPECT_EQ(stream_->region_bytes(), 3 * kRequest);
  EXPECT_EQ(stream_->round_bytes(), 3 * kRequest);
}

TEST_F(RegionStreamTest, AFailureIsReportedAndNothingStaysInFlight) {
  Make(4 * kSlots * kRequest);
  device_->FailRange(0, IoDirection::kWrite, 9 * kRequest, kRequest, EIO, FaultCount::kAlways);
  const Status filled = stream_->Fill(Never);
  EXPECT_EQ(filled.code(), ErrorCode::kIo);
  EXPECT_NE(filled.message().find("simulated/0"), std::string::npos) << filled.message();
  EXPECT_EQ(device_->in_flight(), 0u);
}

TEST_F(RegionStreamTest, SurvivesShortTransfersAndReordering) {
  FaultyDeviceOptions options;
  options.short_transfer_probability = 0.2;
  options.eagain_probability = 0.1;
  Make(4 * kSlots * kRequest, options);
  ASSERT_TRUE(stream_->Fill(Never).ok());
  const auto moved = stream_->Run(IoDirection::kRead, [&](const RegionStream::Moved& so_far) {
    return so_far.bytes >= 20 * stream_->round_bytes();
  });
  ASSERT_TRUE(moved.ok()) << moved.status().message();
}

TEST(DriveSpeedTest, APathThatPagesAtHalfItsReadSpeed) {
  EXPECT_DOUBLE_EQ((DriveSpeed{2e9, 2e9}).paging_rate(), 1e9);
  EXPECT_DOUBLE_EQ((DriveSpeed{3e9, 1e9}).paging_rate(), 0.75e9);
}

// With real drives; what they are like decides nothing here.
class MeasureDrivesTest : public testing::Test {
 protected:
  void SetUp() override {
    const Result<DirectoryReport> report = CheckNvmeDirectory(a_.path());
    if (!report.ok() || !report.value().direct_io) GTEST_SKIP() << "no direct I/O here";
    options_.region_bytes = 4 * kMiB;
    options_.moved_bytes = 8 * kMiB;
    options_.seconds_max = 0.2;
  }
  static bool Empty(const TempDir& folder) { return std::filesystem::is_empty(folder.path()); }

  TempDir a_, b_;
  DriveSpeedOptions options_;
};

TEST_F(MeasureDrivesTest, TellsASpeedEachWayAndLeavesNothing) {
  const std::vector<DriveFolder> folders = {{a_.path(), kGiB}, {b_.path(), kGiB}};
  const auto speeds = MeasureDrives(folders, options_);
  ASSERT_TRUE(speeds.ok()) << speeds.status().message();
  ASSERT_EQ(speeds.value().size(), 2u);
  for (const DriveSpeed& speed : speeds.value()) {
    EXPECT_GT(speed.read_rate, 1e3);
    EXPECT_GT(speed.write_rate, 1e3);
  }
  EXPECT_TRUE(Empty(a_));
  EXPECT_TRUE(Empty(b_));
}

TEST_F(MeasureDrivesTest, APathOfOnePageIsMeasured) {
  const std::vector<DriveFolder> folders = {{a_.path(), kPageBytes}, {b_.path(), kGiB}};
  const auto speeds = MeasureDrives(folders, options_);
  EXPECT_TRUE(speeds.ok()) << speeds.status().message();
}

TEST_F(MeasureDrivesTest, EveryModeMeasures) {
  for (const IoMode mode : {IoMode::kUringRegistered, IoMode::kUring, IoMode::kPosix}) {
    options_.device.mode = mode;
    const std::vector<DriveFolder> folders = {{a_.path(), kGiB}};
    const auto speeds = MeasureDrives(folders, options_);
    // A mode that this machine does not offer is no other one.
    EXPECT_TRUE(speeds.ok() || speeds.status().code() == ErrorCode::kUnavailable)
        << speeds.status().message();
    EXPECT_TRUE(Empty(a_));
  }
}

TEST_F(MeasureDrivesTest, AFailureNamesItsPathAndHoldsUpNobody) {
  const std::string missing = b_.path() + "/missing";
  const std::vector<DriveFolder> folders = {{a_.path(), kGiB}, {missing, kGiB}, {b_.path(), kGiB}};
  const auto speeds = MeasureDrives(folders, options_);
  ASSERT_FALSE(speeds.ok());
  EXPECT_EQ(speeds.status().code(), ErrorCode::kIo);
  EXPECT_NE(speeds.status().message().find(missing), std::string::npos)
      << speeds.status().message();
  EXPECT_TRUE(Empty(a_));
  EXPECT_TRUE(Empty(b_));
}

TEST_F(MeasureDrivesTest, AKilledProcessLeavesNothing) {
  options_.moved_bytes = UINT64_MAX;
  options_.seconds_max = 30;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::vector<DriveFolder> folders = {{a_.path(), kGiB}, {b_.path(), kGiB}};
    (void)!::write(ready[1], "r", 1);
    (void)MeasureDrives(folders, options_);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::usleep(200'000);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it measures for a minute and a half";
  EXPECT_TRUE(Empty(a_));
  EXPECT_TRUE(Empty(b_));
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace marea
