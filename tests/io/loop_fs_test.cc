// Real ext4 file systems in a file, where mounting is allowed: a small one that fills up, one with
// sectors of 4096 bytes, one mounted read-only.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/nvme_directory.h"
#include "io/pinned_arena.h"
#include "io/units.h"
#include "tests/io/device_harness.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

class LoopFsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may mount";
  }
  void TearDown() override {
    if (mounted_) Unmount();
    EXPECT_TRUE(loop_.empty() || Shell("losetup -d " + loop_)) << said_;
  }

  // False where loop devices or mounts are not allowed, as in most containers.
  bool Mount(uint64_t bytes, int sector_bytes) {
    const std::string image = folder_.File("image");
    const std::string name = folder_.File("loop");
    std::filesystem::create_directory(path());
    if (!Shell("truncate -s " + std::to_string(bytes) + " " + image) ||
        !Shell("losetup --show -f --sector-size " + std::to_string(sector_bytes) + " " + image +
               " > " + name)) {
      return false;
    }
    std::unique_ptr<FILE, int (*)(FILE*)> in(std::fopen(name.c_str(), "r"), std::fclose);
    std::array<char, 64> text{};
    if (std::fgets(text.data(), text.size(), in.get()) == nullptr) return false;
    loop_ = std::string(text.data());
    while (!loop_.empty() && loop_.back() == '\n') loop_.pop_back();
    mounted_ = Shell("mkfs.ext4 -q " + loop_) && Shell("mount " + loop_ + " " + path());
    return mounted_;
  }
  // Others may look into a new mount for a moment (a desktop does). That a device itself keeps no
  // file open is device_end_test's.
  void Unmount() {
    constexpr int kAttemptsMax = 100;
    for (int attempt = 0; ::umount2(path().c_str(), 0) != 0; ++attempt) {
      ASSERT_TRUE(errno == EBUSY && attempt < kAttemptsMax)
          << "umount " << path() << ": " << std::strerror(errno);
      ::usleep(100'000);
    }
  }

  // Keeps what the command says on stderr in said_.
  bool Shell(const std::string& command) {
    const std::string log = folder_.File("stderr");
    const int status = std::system(("( " + command + " ) 2> " + log).c_str());
    std::ifstream in(log);
    std::string text((std::istreambuf_iterator<char>(in)), {});
    said_ = fmt::format("`{}` gave {}: {}", command, status, text);
    return status == 0;
  }
  uint64_t FreeBytes() const { return std::filesystem::space(path()).free; }
  std::string path() const { return folder_.File("mount"); }

  TempDir folder_;
  std::string loop_;
  std::string said_;  // by the last command
  bool mounted_ = false;
};

TEST_F(LoopFsTest, AFileThatDoesNotFitIsRefusedWithTheNumbers) {
  if (!Mount(64 * kMiB, 512)) GTEST_SKIP() << "no loop mounts here: " << said_;
  const Result<DataFile> file = DataFile::Create(path() + "/data", 80 * kMiB);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_NE(file.status().message().find("80.0 MiB"), std::string::npos) << file.status().message();
  EXPECT_FALSE(std::filesystem::exists(path() + "/data"));
  // What its own file occupies already counts for it.
  ASSERT_TRUE(DataFile::Create(path() + "/data", 40 * kMiB).ok());
  const Result<DataFile> again = DataFile::Create(path() + "/data", 41 * kMiB);
  EXPECT_TRUE(again.ok()) << again.status().message();
}

TEST_F(LoopFsTest, AFullDriveEndsTheWriteWithPathAndBytes) {
  if (!Mount(64 * kMiB, 512)) GTEST_SKIP() << "no loop mounts here: " << said_;
  const std::string name = path() + "/sparse";
  constexpr uint64_t kBytes = 80 * kMiB;
  ArenaOptions options;
  options.bytes = kBytes;
  const PinnedArena arena = PinnedArena::Create(options).value();
  for (const IoMode mode : {IoMode::kUringRegistered, IoMode::kUring, IoMode::kPosix}) {
    const UniqueFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600));
    ASSERT_TRUE(fd.valid()) << name << ": " << std::strerror(errno);
    ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0) << std::strerror(errno);
    const uint64_t free_bytes = FreeBytes();
    ASSERT_LT(free_bytes, kBytes);
    const std::array files = {DeviceFile{fd.get(), name}};
    const std::array buffers = {arena.bytes()};
    BlockDeviceOptions device_options;
    device_options.mode = mode;
    const auto device = MakeBlockDevice(files, buffers, device_options);
    if (!device.ok()) continue;
    const Status status =
        Transfer(*device.value(), {IoDirection::kWrite, 0, 0, arena.bytes().data(), kBytes, 1});
    const IoCounters& counters = device.value()->counters();
    SCOPED_TRACE(fmt::format(
        "{}: \"{}\"; {} bytes were free before and {} after, {} were written, {} short transfers, "
        "{} retries",
        IoModeName(mode), status.message(), free_bytes, FreeBytes(), counters.write_bytes,
        counters.short_transfers, counters.retries));
    EXPECT_EQ(status.error_number(), ENOSPC);
    EXPECT_EQ(status.message().find(name + ": write of "), 0u);
    EXPECT_EQ(counters.failures, 1u);
    EXPECT_LE(counters.write_bytes, free_bytes);
  }
}

TEST_F(LoopFsTest, FindsSectorsOf4096Bytes) {
  if (!Mount(64 * kMiB, 4096)) GTEST_SKIP() << "no loop mounts with large sectors here: " << said_;
  const Result<DirectoryReport> report = CheckNvmeDirectory(path());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report.value().direct_io);
  EXPECT_EQ(report.value().alignment_bytes, 4096u) << report.value().alignment_source;
  EXPECT_EQ(report.value().file_system, "ext4");
  EXPECT_TRUE(DataFile::Create(path() + "/data", 8 * kMiB).ok());
}

TEST_F(LoopFsTest, RefusesAReadOnlyFileSystem) {
  if (!Mount(64 * kMiB, 512) || !Shell("mount -o remount,ro " + path())) {
    GTEST_SKIP() << "no loop mounts here: " << said_;
  }
  const Result<DirectoryReport> report = CheckNvmeDirectory(path());
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(report.status().message().find("read-only"), std::string::npos)
      << report.status().message();
}

}  // namespace
}  // namespace marea
