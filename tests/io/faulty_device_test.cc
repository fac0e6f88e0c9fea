// The simulated drive itself: its faults happen, its crash tears, its seed decides.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "io/pinned_arena.h"
#include "io/units.h"
#include "tests/fakes/faulty_block_device.h"
#include "tests/io/device_harness.h"

namespace marea {
namespace {

constexpr uint64_t kFileBytes = 4 * kMiB;

class FaultyDeviceTest : public testing::Test {
 protected:
  FaultyDeviceTest() {
    ArenaOptions arena;
    arena.bytes = 2 * kFileBytes;
    arena_ = std::make_unique<PinnedArena>(PinnedArena::Create(arena).value());
    options_.file_bytes = {kFileBytes};
    options_.device.request_bytes = 64 * kKiB;
    options_.device.capacity = 64;
  }
  std::byte* data() { return arena_->bytes().data(); }
  FaultyBlockDevice& Make() {
    device_ = std::make_unique<FaultyBlockDevice>(clock_, options_);
    return *device_;
  }
  Status Write(uint64_t offset, uint64_t bytes, int value) {
    std::memset(data() + offset, value, bytes);
    return Transfer(*device_, {IoDirection::kWrite, 0, offset, data() + offset, bytes, 1});
  }
  Status Read(uint64_t offset, uint64_t bytes) {
    return Transfer(*device_, {IoDirection::kRead, 0, offset, data() + offset, bytes, 1});
  }

  VirtualClock clock_;
  FaultyDeviceOptions options_;
  std::unique_ptr<PinnedArena> arena_;
  std::unique_ptr<FaultyBlockDevice> device_;
};

TEST_F(FaultyDeviceTest, OneEioIsRetriedTwoAreReported) {
  Make().FailRange(0, IoDirection::kRead, kMiB, 1, EIO, FaultCount::kOnce);
  EXPECT_TRUE(Read(0, 2 * kMiB).ok());
  EXPECT_EQ(device_->counters().retries, 1u);
  device_->FailRange(0, IoDirection::kRead, kMiB, 1, EIO, FaultCount::kAlways);
  const Status status = Read(0, 2 * kMiB);
  EXPECT_EQ(status.error_number(), EIO);
  EXPECT_NE(status.message().find("simulated/0: read of 65536 bytes at offset 1048576"),
            std::string::npos)
      << status.message();
  EXPECT_TRUE(Read(0, kMiB).ok()) << "outside the range";
  EXPECT_TRUE(Write(0, 2 * kMiB, 1).ok()) << "the other direction";
  device_->ClearFaults();
  EXPECT_TRUE(Read(0, 2 * kMiB).ok());
}

TEST_F(FaultyDeviceTest, AFullDriveIsReported) {
  Make().FailRange(0, IoDirection::kWrite, 2 * kMiB, kFileBytes, ENOSPC, FaultCount::kAlways);
  EXPECT_EQ(Write(0, kFileBytes, 1).error_number(), ENOSPC);
}

TEST_F(FaultyDeviceTest, BitsRot) {
  Make();
  ASSERT_TRUE(Write(0, kMiB, 7).ok());
  device_->FlipBit(0, 12345, 3);
  ASSERT_TRUE(Read(0, kMiB).ok());
  EXPECT_EQ(data()[12345], std::byte{7 ^ 8});
  EXPECT_EQ(data()[12346], std::byte{7});
}

TEST_F(FaultyDeviceTest, ReordersBySeedAndRepeatsIt) {
  std::vector<std::vector<uint64_t>> orders;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{1}, uint64_t{2}}) {
    options_.seed = seed;
    options_.short_transfer_probability = 0.3;
    Make();
    std::vector<IoRequest> requests;
    for (uint64_t i = 0; i < 16; ++i) {
      requests.push_back(
          {IoDirection::kRead, 0, i * 64 * kKiB, data() + i * 64 * kKiB, 64 * kKiB, i});
    }
    ASSERT_TRUE(device_->Submit(requests).ok());
    std::vector<uint64_t> order;
    std::array completion = {IoCompletion{0, Status::Ok()}};
    while (device_->in_flight() > 0) {
      if (device_->Reap(completion, ReapWait::kUntilOne) == 1) order.push_back(completion[0].tag);
    }
    orders.push_back(order);
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
  EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
}

TEST_F(FaultyDeviceTest, ASilentDriveHangsNobody) {
  Make().StopAnswering();
  const IoRequest request = {IoDirection::kRead, 0, 0, data(), kMiB, 5};
  ASSERT_TRUE(device_->Submit(std::span(&request, 1)).ok());
  std::array completion = {IoCompletion{0, Status::Ok()}};
  EXPECT_EQ(device_->Reap(completion, ReapWait::kUntilOne), 0u);
  EXPECT_EQ(device_->in_flight(), 1u);
  device_->StartAnswering();
  ASSERT_EQ(device_->Reap(completion, ReapWait::kUntilOne), 1u);
  EXPECT_EQ(completion[0].tag, 5u);
  EXPECT_TRUE(completion[0].status.ok());
}

TEST_F(FaultyDeviceTest, SilenceInTheMiddleLosesNothing) {
  Make();
  const IoRequest request = {IoDirection::kRead, 0, 0, data(), kMiB, 5};
  ASSERT_TRUE(device_->Submit(std::span(&request, 1)).ok());
  clock_.RunNext();
  device_->StopAnswering();
  clock_.AdvanceTo(clock_.now() + 1'000'000'000);
  EXPECT_EQ(device_->in_flight(), 1u);
  device_->StartAnswering();
  std::array completion = {IoCompletion{0, Status::Ok()}};
  ASSERT_EQ(device_->Reap(completion, ReapWait::kUntilOne), 1u);
}

TEST_F(FaultyDeviceTest, ACrashKeepsWhatWasSyncedAndTearsTheRest) {
  int kept = 0;
  int lost = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    options_.seed = seed;
    Make();
    ASSERT_TRUE(Write(0, kMiB, 1).ok());
    device_->Sync();
    ASSERT_TRUE(Write(0, 64 * kKiB, 2).ok());  // completed, not synced
    const IoRequest flying = {IoDirection::kWrite, 0, kMiB / 2, data() + kMiB, 64 * kKiB, 9};
    std::memset(data() + kMiB, 3, 64 * kKiB);
    ASSERT_TRUE(device_->Submit(std::span(&flying, 1)).ok());
    device_->Crash();
    EXPECT_EQ(device_->in_flight(), 0u);
    const auto bytes = device_->contents(0);
    for (uint64_t at = 0; at < kMiB; at += 512) {
      const int value = std::to_integer<int>(bytes[at]);
      for (uint64_t i = 0; i < 512; ++i) ASSERT_EQ(std::to_integer<int>(bytes[at + i]), value);
      if (at < 64 * kKiB) {
        ASSERT_TRUE(value == 1 || value == 2);
        ++(value == 2 ? kept : lost);
      } else if (at >= kMiB / 2 && at < kMiB / 2 + 64 * kKiB) {
        ASSERT_TRUE(value == 1 || value == 3);
      } else {
        ASSERT_EQ(value, 1) << "synced bytes changed, seed " << seed;
      }
    }
    while (clock_.RunNext()) {
    }
    EXPECT_TRUE(Read(0, kMiB).ok()) << "usable after the restart";
  }
  EXPECT_GT(kept, 500);
  EXPECT_GT(lost, 500);
}

using FaultyDeviceDeathTest = FaultyDeviceTest;

TEST_F(FaultyDeviceDeathTest, CatchesACallerThatWritesIntoABusyBuffer) {
  Make();
  const IoRequest request = {IoDirection::kWrite, 0, 0, data(), kPageBytes, 1};
  ASSERT_TRUE(device_->Submit(std::span(&request, 1)).ok());
  data()[100] ^= std::byte{1};
  std::array completion = {IoCompletion{0, Status::Ok()}};
  EXPECT_DEATH(device_->Reap(completion, ReapWait::kUntilOne), "changed before its completion");
}

TEST_F(FaultyDeviceDeathTest, CatchesOverlap) {
  Make();
  const IoRequest write = {IoDirection::kWrite, 0, kPageBytes, data(), 2 * kPageBytes, 1};
  const IoRequest read = {IoDirection::kRead, 0, 0, data() + kMiB, 2 * kPageBytes, 2};
  const IoRequest apart = {IoDirection::kRead, 0, 0, data() + kMiB, kPageBytes, 3};
  const IoRequest memory = {IoDirection::kRead, 0, kMiB, data() + kPageBytes, kPageBytes, 4};
  ASSERT_TRUE(device_->Submit(std::span(&write, 1)).ok());
  EXPECT_DEATH(static_cast<void>(device_->Submit(std::span(&read, 1))), "overlapping");
  EXPECT_DEATH(static_cast<void>(device_->Submit(std::span(&memory, 1))), "share memory");
  EXPECT_TRUE(device_->Submit(std::span(&apart, 1)).ok());
}

}  // namespace
}  // namespace marea
