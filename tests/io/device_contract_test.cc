// What block_device.h promises, on every implementation: io_uring registered and not, threads, and
// the simulated drive (with short transfers and EAGAIN all the time).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "io/pinned_arena.h"
#include "io/units.h"
#include "tests/io/device_harness.h"

namespace marea {
namespace {

constexpr BlockDeviceOptions kOptions = {
    .queue_depth = 8, .request_bytes = 256 * kKiB, .capacity = 64, .mode = {}};

class DeviceContractTest : public testing::TestWithParam<HarnessKind> {
 protected:
  void SetUp() override {
    std::string why;
    harness_ = MakeHarness(GetParam(), kOptions, &why);
    if (harness_ == nullptr) GTEST_SKIP() << why;
  }
  BlockDevice& device() { return harness_->device(); }
  std::span<std::byte> memory() { return harness_->memory(); }

  // Reaps until nothing is in flight; returns completions by tag.
  std::map<uint64_t, Status> Drain() {
    std::map<uint64_t, Status> done;
    std::vector<IoCompletion> batch(5, IoCompletion{0, Status::Ok()});
    while (device().in_flight() > 0) {
      const size_t count = device().Reap(batch, ReapWait::kUntilOne);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(done.emplace(batch[i].tag, batch[i].status).second)
            << "request " << batch[i].tag << " completes twice";
      }
    }
    return done;
  }

  std::unique_ptr<DeviceHarness> harness_;
};

void Stamp(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
}

bool HasStamp(std::span<const std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    if (std::memcmp(bytes.data() + at, &word, sizeof(word)) != 0) return false;
  }
  return true;
}

TEST_P(DeviceContractTest, ReadsBackWhatItWrote) {
  // Requests from one page to several pieces, covering the file.
  std::mt19937_64 random(2);
  std::vector<IoRequest> requests;
  for (uint64_t offset = 0; offset < harness_->file_bytes();) {
    const uint64_t bytes =
        std::min(kPageBytes * (1 + random() % 300), harness_->file_bytes() - offset);
    requests.push_back(
        {IoDirection::kWrite, 0, offset, memory().data() + offset, bytes, requests.size()});
    Stamp({requests.back().data, bytes}, offset);
    offset += bytes;
  }
  for (const IoDirection direction : {IoDirection::kWrite, IoDirection::kRead}) {
    if (direction == IoDirection::kRead) std::fill(memory().begin(), memory().end(), std::byte{0});
    std::shuffle(requests.begin(), requests.end(), random);
    size_t finished = 0;
    for (size_t next = 0; next < requests.size();) {
      const size_t count = std::min(device().capacity(), requests.size() - next);
      for (size_t i = next; i < next + count; ++i) requests[i].direction = direction;
      ASSERT_TRUE(device().Submit(std::span(requests).subspan(next, count)).ok());
      for (const auto& [tag, status] : Drain()) {
        ++finished;
        EXPECT_TRUE(status.ok()) << status.message();
      }
      next += count;
    }
    EXPECT_EQ(finished, requests.size());
  }
  for (const IoRequest& request : requests) {
    EXPECT_TRUE(HasStamp({request.data, request.bytes}, request.offset)) << request.offset;
  }
  EXPECT_GE(device().counters().write_bytes, harness_->file_bytes());
  EXPECT_GE(device().counters().read_bytes, harness_->file_bytes());
  EXPECT_EQ(device().counters().failures, 0u);
}

TEST_P(DeviceContractTest, TakesAsManyAsItsCapacity) {
  std::vector<IoRequest> requests;
  for (uint64_t i = 0; i < device().capacity(); ++i) {
    requests.push_back({IoDirection::kRead, 0, i * kPageBytes, memory().data() + i * kPageBytes,
                        kPageBytes, 1000 + i});
  }
  ASSERT_TRUE(device().Submit(requests).ok());
  EXPECT_EQ(device().in_flight(), device().capacity());
  const auto done = Drain();
  EXPECT_EQ(done.size(), requests.size());
  for (const IoRequest& request : requests) EXPECT_EQ(done.count(request.tag), 1u);
}

TEST_P(DeviceContractTest, ReportsAReadPastTheEndAndGoesOn) {
  const uint64_t end = harness_->file_bytes();
  const std::vector<IoRequest> requests = {
      {IoDirection::kRead, 0, end - kPageBytes, memory().data(), 2 * kPageBytes, 1},
      {IoDirection::kRead, 0, 0, memory().data() + kMiB, kMiB, 2},
      {IoDirection::kRead, 0, end + kGiB, memory().data() + 4 * kMiB, kMiB, 3},
  };
  ASSERT_TRUE(device().Submit(requests).ok());
  const auto done = Drain();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done.at(1).code(), ErrorCode::kIo);
  EXPECT_NE(done.at(1).message().find("at offset " + std::to_string(end)), std::string::npos)
      << done.at(1).message();
  EXPECT_TRUE(done.at(2).ok()) << done.at(2).message();
  EXPECT_EQ(done.at(3).code(), ErrorCode::kIo);
  EXPECT_TRUE(Transfer(device(), requests[1]).ok());
}

TEST_P(DeviceContractTest, UsesMemoryOutsideTheBuffers) {
  PinnedArena other =
      PinnedArena::Create(
          {.bytes = kMiB, .numa_node = kAnyNumaNode, .touch_threads = 1, .registrar = nullptr})
          .value();
  Stamp(other.bytes(), 5);
  ASSERT_TRUE(Transfer(device(), {IoDirection::kWrite, 0, 0, other.bytes().data(), kMiB, 1}).ok());
  ASSERT_TRUE(Transfer(device(), {IoDirection::kRead, 0, 0, memory().data(), kMiB, 2}).ok());
  EXPECT_TRUE(HasStamp(memory().first(kMiB), 5));
}

TEST_P(DeviceContractTest, AnEmptyPollReturnsAtOnce) {
  std::vector<IoCompletion> batch(4, IoCompletion{0, Status::Ok()});
  EXPECT_EQ(device().Reap(batch, ReapWait::kNo), 0u);
  EXPECT_TRUE(device().Submit({}).ok());
  EXPECT_EQ(device().Reap(batch, ReapWait::kNo), 0u);
}

TEST_P(DeviceContractTest, AWakeIsKeptForTheNextBlockingReap) {
  std::vector<IoCompletion> batch(4, IoCompletion{0, Status::Ok()});
  for (int turn = 0; turn < 3; ++turn) {
    device().Wake();
    device().Wake();
    EXPECT_EQ(device().Reap(batch, ReapWait::kNo), 0u);
    EXPECT_EQ(device().Reap(batch, ReapWait::kUntilOne), 0u);
  }
}

TEST_P(DeviceContractTest, WakeEndsABlockedReapAndCarriesWhatCameBefore) {
  if (GetParam() == HarnessKind::kSimulated) GTEST_SKIP() << "the simulated drive has one thread";
  std::vector<IoCompletion> batch(4, IoCompletion{0, Status::Ok()});
  for (int turn = 0; turn < 20; ++turn) {
    int message = 0;  // not atomic: Wake publishes it, and the thread sanitizer checks that
    std::thread waker([&] {
      if (turn % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      message = turn + 1;
      device().Wake();
    });
    EXPECT_EQ(device().Reap(batch, ReapWait::kUntilOne), 0u);
    EXPECT_EQ(message, turn + 1);
    waker.join();
  }
}

TEST_P(DeviceContractTest, WakesAndTransfersTogether) {
  if (GetParam() == HarnessKind::kSimulated) GTEST_SKIP() << "the simulated drive has one thread";
  std::atomic<bool> stop{false};
  std::thread waker([&] {
    while (!stop) {
      device().Wake();
      std::this_thread::yield();
    }
  });
  for (uint64_t turn = 0; turn < 200; ++turn) {
    const std::vector<IoRequest> requests = {
        {IoDirection::kRead, 0, 0, memory().data(), kMiB, 2 * turn},
        {IoDirection::kRead, 0, kMiB, memory().data() + kMiB, kPageBytes, 2 * turn + 1}};
    ASSERT_TRUE(device().Submit(requests).ok());
    EXPECT_EQ(Drain().size(), 2u);
  }
  stop = true;
  waker.join();
}

TEST_P(DeviceContractTest, IsDrivenByAThreadThatDidNotMakeIt) {
  Status status = Status::Cancelled("not run");
  std::thread driver([&] {
    status = Transfer(device(), {IoDirection::kRead, 0, 0, memory().data(), 4 * kMiB, 1});
  });
  driver.join();
  EXPECT_TRUE(status.ok()) << status.message();
  harness_.reset();  // and destroyed by the one that made it
}

TEST_P(DeviceContractTest, IsDestroyedWithTransfersInFlight) {
  std::vector<IoRequest> requests;
  for (uint64_t i = 0; i < 16; ++i) {
    requests.push_back({IoDirection::kRead, 0, i * kMiB, memory().data() + i * kMiB, kMiB, i});
  }
  ASSERT_TRUE(device().Submit(requests).ok());
  harness_.reset();
}

TEST_P(DeviceContractTest, ReportsItsMode) {
  const IoModeReport& mode = device().mode();
  EXPECT_STRNE(IoModeName(mode.mode), "unknown");
  EXPECT_EQ(mode.reason.empty(), mode.cost.empty());
}

INSTANTIATE_TEST_SUITE_P(AllDevices, DeviceContractTest,
                         testing::Values(HarnessKind::kUringRegistered, HarnessKind::kUring,
                                         HarnessKind::kPosix, HarnessKind::kSimulated),
                         [](const auto& info) { return HarnessName(info.param); });

}  // namespace
}  // namespace marea
