// A drive that stops answering, and a file that goes away underneath: for real.
//
// The silent "drive" is a pipe: a read of it completes when somebody writes, which nobody does.
// io_uring holds such a read as it holds one of a drive that is gone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/pinned_arena.h"
#include "io/units.h"
#include "io/uring_device.h"
#include "tests/io/device_harness.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

constexpr uint64_t kRequestBytes = 4 * kMiB;
constexpr std::array kRealModes = {IoMode::kUringRegistered, IoMode::kUring, IoMode::kPosix};

PinnedArena MakeArena() {
  ArenaOptions options;
  options.bytes = kRequestBytes;
  return PinnedArena::Create(options).value();
}

class SilenceTest : public testing::TestWithParam<IoMode> {
 protected:
  void SetUp() override {
    if (ProbeUring().error_number != 0) GTEST_SKIP() << "no io_uring here";
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    from_ = UniqueFd(ends[0]);
    to_ = UniqueFd(ends[1]);
  }

  Result<std::unique_ptr<BlockDevice>> Make(double silence_seconds_max) {
    const std::array files = {DeviceFile{from_.get(), "silent"}};
    const std::array buffers = {arena_.bytes()};
    BlockDeviceOptions options;
    options.mode = GetParam();
    options.silence_seconds_max = silence_seconds_max;
    return MakeBlockDevice(files, buffers, options);
  }
  IoRequest Read(uint64_t tag) {
    return {IoDirection::kRead, 0, 0, arena_.bytes().data() + tag * kPageBytes, kPageBytes, tag};
  }

  UniqueFd from_;
  UniqueFd to_;
  PinnedArena arena_ = MakeArena();
};

TEST_P(SilenceTest, EndsWithEverythingInFlightFailedInTheStatedTime) {
  auto device = Make(0.3);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const auto began = std::chrono::steady_clock::now();
  const std::array requests = {Read(0), Read(1), Read(2)};
  ASSERT_TRUE(device.value()->Submit(requests).ok());
  std::vector<IoCompletion> done(4, IoCompletion{0, Status::Ok()});
  size_t count = 0;
  while (device.value()->in_flight() > 0) {
    count += device.value()->Reap(std::span(done).subspan(count), ReapWait::kUntilOne);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  ASSERT_EQ(count, 3u);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(done[i].status.error_number(), ETIMEDOUT);
    const std::string& text = done[i].status.message();
    EXPECT_EQ(text.find("silent: read of 4096 bytes at offset 0"), 0u) << text;
    EXPECT_NE(text.find("not answered for 0.3 seconds"), std::string::npos) << text;
  }
  EXPECT_GE(took.count(), 0.3);
  EXPECT_LT(took.count(), 5);
  EXPECT_EQ(device.value()->Submit(requests).error_number(), ETIMEDOUT) << "it takes no more";
  device.value().reset();  // and lets go of what the kernel still has
}

TEST_P(SilenceTest, AnIdleDeviceIsNotSilentAndWakesDoNotHideSilence) {
  auto device = Make(0.3);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  std::vector<IoCompletion> done(2, IoCompletion{0, Status::Ok()});
  ::usleep(400'000);
  device.value()->Wake();
  EXPECT_EQ(device.value()->Reap(done, ReapWait::kUntilOne), 0u);
  const IoRequest request = Read(0);
  ASSERT_TRUE(device.value()->Submit(std::span(&request, 1)).ok());
  size_t count = 0;
  for (int i = 0; i < 100 && count == 0; ++i) {
    device.value()->Wake();
    count = device.value()->Reap(done, ReapWait::kUntilOne);
    ::usleep(10'000);
  }
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(done[0].status.error_number(), ETIMEDOUT);
}

TEST_P(SilenceTest, WithoutALimitItWaits) {
  auto device = Make(0);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const IoRequest request = Read(0);
  ASSERT_TRUE(device.value()->Submit(std::span(&request, 1)).ok());
  ::usleep(100'000);
  std::vector<IoCompletion> done(2, IoCompletion{0, Status::Ok()});
  EXPECT_EQ(device.value()->Reap(done, ReapWait::kNo), 0u);
  const std::vector<char> page(kPageBytes, 'x');
  ASSERT_EQ(::write(to_.get(), page.data(), page.size()), static_cast<ssize_t>(kPageBytes));
  EXPECT_EQ(device.value()->Reap(done, ReapWait::kUntilOne), 1u);
  EXPECT_TRUE(done[0].status.ok()) << done[0].status.message();
}

INSTANTIATE_TEST_SUITE_P(Uring, SilenceTest,
                         testing::Values(IoMode::kUringRegistered, IoMode::kUring),
                         [](const auto& info) {
                           return info.param == IoMode::kUring ? "Unregistered" : "Registered";
                         });

class VanishedFileTest : public testing::Test {
 protected:
  // Runs `body` with a device of each mode that is possible here.
  void ForEachMode(const std::function<void(BlockDevice&, DataFile&, const std::string&)>& body) {
    for (const IoMode mode : kRealModes) {
      SCOPED_TRACE(IoModeName(mode));
      const std::string path = folder_.File("data");
      DataFile file = DataFile::Create(path, kRequestBytes).value();
      const std::array files = {DeviceFile{file.fd(), path}};
      const std::array buffers = {arena_.bytes()};
      BlockDeviceOptions options;
      options.mode = mode;
      const auto device = MakeBlockDevice(files, buffers, options);
      if (!device.ok()) continue;
      body(*device.value(), file, path);
    }
  }

  TempDir folder_;
  PinnedArena arena_ = MakeArena();
};

TEST_F(VanishedFileTest, ReadsBehindATruncatedEndFail) {
  ForEachMode([&](BlockDevice& device, DataFile&, const std::string& path) {
    ASSERT_EQ(::truncate(path.c_str(), kMiB + 2 * kPageBytes), 0);
    const Status status =
        Transfer(device, {IoDirection::kRead, 0, 0, arena_.bytes().data(), kRequestBytes, 1});
    EXPECT_EQ(status.code(), ErrorCode::kIo);
    EXPECT_NE(status.message().find("the file ends here"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find(path + ": read of "), 0u) << status.message();
    EXPECT_TRUE(Transfer(device, {IoDirection::kRead, 0, 0, arena_.bytes().data(), kMiB, 2}).ok());
  });
}

TEST_F(VanishedFileTest, ADeletedFileStaysUsable) {
  ForEachMode([&](BlockDevice& device, DataFile&, const std::string& path) {
    ASSERT_EQ(::unlink(path.c_str()), 0);
    std::byte* const data = arena_.bytes().data();
    std::memset(data, 0x3c, kRequestBytes);
    ASSERT_TRUE(Transfer(device, {IoDirection::kWrite, 0, 0, data, kRequestBytes, 1}).ok());
    std::memset(data, 0, kRequestBytes);
    ASSERT_TRUE(Transfer(device, {IoDirection::kRead, 0, 0, data, kRequestBytes, 2}).ok());
    EXPECT_EQ(data[kRequestBytes - 1], std::byte{0x3c});
  });
}

}  // namespace
}  // namespace marea
