// What is left of a device once it is gone or its process was killed: nothing that holds its files
// for long. The next run opens them, and needs their space.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/pinned_arena.h"
#include "io/units.h"
#include "tests/io/child_process.h"
#include "tests/io/device_harness.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

constexpr uint64_t kBytes = 16 * kMiB;
constexpr int kRounds = 10;

class DeviceEndTest : public testing::TestWithParam<IoMode> {
 protected:
  std::string name() const { return folder_.File("data"); }

  // Makes a device on `file` and has it write; "" if that worked or the machine lacks the mode.
  std::string Use(const DataFile& file, std::unique_ptr<BlockDevice>* device) {
    const std::array files = {DeviceFile{file.fd(), file.path()}};
    const std::array buffers = {arena_.bytes()};
    BlockDeviceOptions options;
    options.mode = GetParam();
    auto made = MakeBlockDevice(files, buffers, options);
    if (!made.ok()) return made.status().message();
    *device = std::move(made).value();
    return Transfer(**device, {IoDirection::kWrite, 0, 0, arena_.bytes().data(), kBytes, 1})
        .message();
  }
  bool Possible() {
    const DataFile file = DataFile::Create(name(), kBytes).value();
    std::unique_ptr<BlockDevice> device;
    why_ = Use(file, &device);
    return why_.empty();
  }

  TempDir folder_;
  PinnedArena arena_ =
      PinnedArena::Create(
          {.bytes = kBytes, .numa_node = kAnyNumaNode, .touch_threads = 1, .registrar = nullptr})
          .value();
  std::string why_;
};

TEST_P(DeviceEndTest, ItsFileIsFreeAtOnce) {
  if (!Possible()) GTEST_SKIP() << why_;
  for (int round = 0; round < kRounds; ++round) {
    const Result<DataFile> file = DataFile::Create(name(), kBytes);
    ASSERT_TRUE(file.ok()) << "round " << round << ": " << file.status().message();
    std::unique_ptr<BlockDevice> device;
    ASSERT_EQ(Use(file.value(), &device), "");
  }
}

// Killed with transfers in flight, as by a second SIGINT.
TEST_P(DeviceEndTest, AKilledProcessLeavesItsFileToTheNext) {
  if (!Possible()) GTEST_SKIP() << why_;
  for (int round = 0; round < kRounds; ++round) {
    const std::string end = RunInChild([&]() -> std::string {
      const Result<DataFile> file = DataFile::Create(name(), kBytes);
      if (!file.ok()) return file.status().message();
      std::unique_ptr<BlockDevice> device;
      if (std::string text = Use(file.value(), &device); !text.empty()) return text;
      std::vector<IoRequest> requests;
      for (uint64_t at = 0; at < kBytes; at += kMiB) {
        requests.push_back({IoDirection::kRead, 0, at, arena_.bytes().data() + at, kMiB, at});
      }
      if (Status status = device->Submit(requests); !status.ok()) return status.message();
      ::raise(SIGKILL);
      return "still there";
    });
    ASSERT_EQ(end, " (died of signal 9)") << "round " << round;
  }
  const Result<DataFile> file = DataFile::Create(name(), kBytes);
  EXPECT_TRUE(file.ok()) << file.status().message();
}

INSTANTIATE_TEST_SUITE_P(Modes, DeviceEndTest,
                         testing::Values(IoMode::kUringRegistered, IoMode::kUring, IoMode::kPosix),
                         [](const auto& info) {
                           switch (info.param) {
                             case IoMode::kUringRegistered:
                               return "UringRegistered";
                             case IoMode::kUring:
                               return "Uring";
                             default:
                               return "Posix";
                           }
                         });

}  // namespace
}  // namespace marea
