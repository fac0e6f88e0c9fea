#include "io/data_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "io/drive_info.h"
#include "io/nvme_directory.h"
#include "io/units.h"
#include "tests/io/child_process.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

namespace fs = std::filesystem;

bool Contains(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

TEST(NvmeDirectoryTest, DescribesAFolderOnADrive) {
  const TempDir folder;
  const auto started = std::chrono::steady_clock::now();
  const Result<DirectoryReport> report = CheckNvmeDirectory(folder.path());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_LT(seconds.count(), 1.0);
  EXPECT_FALSE(report.value().file_system.empty());
  EXPECT_GT(report.value().free_bytes, 0u);
  EXPECT_LE(report.value().free_bytes, report.value().total_bytes);
  if (report.value().direct_io) {
    EXPECT_GE(report.value().alignment_bytes, 1u);
    EXPECT_EQ(kPageBytes % report.value().alignment_bytes, 0u);
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "something is left behind";
}

TEST(NvmeDirectoryTest, RefusesWhatIsNoFolderToWriteIn) {
  const TempDir folder;
  std::ofstream(folder.File("file")) << "x";
  struct Case {
    std::string path;
    const char* words;
  };
  const Case cases[] = {
      {"", "is empty"},
      {folder.File("absent"), "does not exist"},
      {folder.File("file"), "is not a folder"},
      {folder.File("file/below"), "leads through a file"},
      {"/proc", "/proc"},
      {"/sys", "/sys"},
      {std::string(5000, 'a'), "cannot be used"},
  };
  for (const Case& bad : cases) {
    const Result<DirectoryReport> report = CheckNvmeDirectory(bad.path);
    ASSERT_FALSE(report.ok()) << bad.path;
    EXPECT_EQ(report.status().code(), ErrorCode::kInvalidArgument) << report.status().message();
    EXPECT_TRUE(Contains(report.status(), bad.words)) << report.status().message();
    EXPECT_TRUE(Contains(report.status(), bad.path)) << report.status().message();
  }
}

TEST(NvmeDirectoryTest, RefusesAFolderThatIsNotWritable) {
  const TempDir folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec |
                                     fs::perms::others_read | fs::perms::others_exec);
  // Root may write everywhere, so the question is asked by nobody.
  EXPECT_EQ(RunInChild([&]() -> std::string {
              if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return "no user";
              const Result<DirectoryReport> report = CheckNvmeDirectory(folder.path());
              if (report.ok()) return "it was accepted";
              // Where the folder above is closed to nobody too, it cannot even be reached.
              return Contains(report.status(), "is not writable") ||
                             Contains(report.status(), "cannot be used")
                         ? ""
                         : report.status().message();
            }),
            "");
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST(NvmeDirectoryTest, RefusesMemoryByName) {
  struct statfs file_system {};
  if (::statfs("/dev/shm", &file_system) != 0 ||
      !LivesInMemory(static_cast<uint32_t>(file_system.f_type))) {
    GTEST_SKIP() << "/dev/shm is no tmpfs here";
  }
  const Result<DirectoryReport> report = CheckNvmeDirectory("/dev/shm");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(Contains(report.status(), "tmpfs")) << report.status().message();
  const Result<DataFile> file = DataFile::Create("/dev/shm/marea-test", kPageBytes);
  ASSERT_FALSE(file.ok());
  EXPECT_TRUE(Contains(file.status(), "tmpfs"));
  EXPECT_FALSE(fs::exists("/dev/shm/marea-test"));
}

TEST(NvmeDirectoryTest, KnowsFileSystems) {
  EXPECT_EQ(FileSystemName(0xef53), "ext4");
  EXPECT_EQ(FileSystemName(0x794c7630), "overlayfs");
  EXPECT_EQ(FileSystemName(0x12345678), "0x12345678");
  EXPECT_TRUE(LivesInMemory(0x01021994));
  EXPECT_TRUE(LivesInMemory(0x858458f6));
  EXPECT_FALSE(LivesInMemory(0xef53));
}

// Counts extents that are allocated but not written; -1 where the file system does not tell.
int UnwrittenExtents(int fd) {
  constexpr uint32_t kExtentsMax = 512;
  std::vector<std::byte> memory(sizeof(fiemap) + kExtentsMax * sizeof(fiemap_extent));
  auto* const map = reinterpret_cast<fiemap*>(memory.data());
  map->fm_length = FIEMAP_MAX_OFFSET;
  map->fm_extent_count = kExtentsMax;
  if (::ioctl(fd, FS_IOC_FIEMAP, map) != 0) return -1;
  int count = 0;
  for (uint32_t i = 0; i < map->fm_mapped_extents; ++i) {
    if ((map->fm_extents[i].fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0) ++count;
  }
  return count;
}

TEST(DataFileTest, IsWrittenWholeBeforeUse) {
  const TempDir folder;
  constexpr uint64_t kBytes = 20 * kMiB + kPageBytes;  // no multiple of the writer's buffer
  uint64_t last = 0;
  uint64_t calls = 0;
  DataFileOptions options;
  options.progress = [&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, last);
    EXPECT_EQ(all, kBytes);
    last = done;
    ++calls;
    return Status::Ok();
  };
  Result<DataFile> file = DataFile::Create(folder.File("data"), kBytes, options);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(last, kBytes);
  EXPECT_GE(calls, 3u);
  EXPECT_EQ(file.value().bytes(), kBytes);
  EXPECT_TRUE(file.value().direct());
  struct stat status {};
  ASSERT_EQ(::fstat(file.value().fd(), &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_size), kBytes);
  EXPECT_GE(static_cast<uint64_t>(status.st_blocks) * 512, kBytes);
  EXPECT_EQ(status.st_mode & 0077, 0u) << "others may read training state";
  EXPECT_LE(UnwrittenExtents(file.value().fd()), 0);
  EXPECT_NE(::fcntl(file.value().fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(file.value().fd(), F_GETFL) & O_DIRECT, 0);
  EXPECT_TRUE(file.value().Sync().ok());
  EXPECT_TRUE(file.value().Unlink().ok());
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(DataFileTest, ReplacesAnOlderFileOfAnotherSize) {
  const TempDir folder;
  for (const uint64_t bytes : {4 * kMiB, kMiB, 8 * kMiB}) {
    const Result<DataFile> file = DataFile::Create(folder.File("data"), bytes);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(fs::file_size(folder.File("data")), bytes);
  }
}

TEST(DataFileTest, OpensWhatItMadeAndKeepsTheContent) {
  const TempDir folder;
  alignas(kPageBytes) static std::byte page[kPageBytes];
  std::memset(page, 0x5a, sizeof(page));
  {
    const Result<DataFile> file = DataFile::Create(folder.File("data"), kMiB);
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(::pwrite(file.value().fd(), page, kPageBytes, kPageBytes),
              static_cast<ssize_t>(kPageBytes));
  }
  const Result<DataFile> file = DataFile::Open(folder.File("data"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().bytes(), kMiB);
  std::memset(page, 0, sizeof(page));
  ASSERT_EQ(::pread(file.value().fd(), page, kPageBytes, kPageBytes),
            static_cast<ssize_t>(kPageBytes));
  EXPECT_EQ(page[17], std::byte{0x5a});
  const Result<DataFile> absent = DataFile::Open(folder.File("absent"));
  ASSERT_FALSE(absent.ok());
  EXPECT_TRUE(Contains(absent.status(), folder.File("absent")));
  EXPECT_FALSE(fs::exists(folder.File("absent")));
}

TEST(DataFileTest, SaysWhoHoldsIt) {
  const TempDir folder;
  const std::string path = folder.File("data");
  Result<DataFile> first = DataFile::Create(path, kMiB);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(RunInChild([&]() -> std::string {
              for (const bool create : {true, false}) {
                const auto second =
                    create ? DataFile::Create(path, 2 * kMiB) : DataFile::Open(path);
                if (second.ok()) return "held twice";
                if (second.status().code() != ErrorCode::kBusy) return second.status().message();
                if (!Contains(second.status(), path)) return second.status().message();
                const std::string holder = "process " + std::to_string(::getppid());
                if (!Contains(second.status(), holder) && !Contains(second.status(), "lslocks")) {
                  return second.status().message();
                }
              }
              return "";
            }),
            "");
  EXPECT_EQ(fs::file_size(path), kMiB) << "the loser changed the file";
  { const DataFile gone = std::move(first).value(); }
  EXPECT_TRUE(DataFile::Open(path).ok()) << "the lock outlives the object";
}

TEST(DataFileTest, RefusesMoreThanIsFreeBeforeItWrites) {
  const TempDir folder;
  const uint64_t free_bytes = CheckNvmeDirectory(folder.path()).value().free_bytes;
  const uint64_t bytes = RoundUp(free_bytes + kGiB, kPageBytes);
  DataFileOptions options;
  options.progress = [](uint64_t, uint64_t) { return Status::Failed("it writes"); };
  const Result<DataFile> file = DataFile::Create(folder.File("data"), bytes, options);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_TRUE(Contains(file.status(), std::to_string(bytes) + " bytes")) << file.status().message();
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(DataFileTest, CancellingLeavesNothing) {
  const TempDir folder;
  DataFileOptions options;
  options.progress = [](uint64_t, uint64_t) { return Status::Cancelled("interrupted"); };
  const Result<DataFile> file = DataFile::Create(folder.File("data"), 32 * kMiB, options);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), ErrorCode::kCancelled);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(DataFileTest, RefusesWhatIsNoRegularFile) {
  const TempDir folder;
  fs::create_directory(folder.File("folder"));
  fs::create_symlink(folder.File("elsewhere"), folder.File("link"));
  ASSERT_EQ(::mkfifo(folder.File("pipe").c_str(), 0600), 0);
  for (const char* name : {"folder", "link", "pipe"}) {
    for (const bool create : {true, false}) {
      const auto file =
          create ? DataFile::Create(folder.File(name), kMiB) : DataFile::Open(folder.File(name));
      ASSERT_FALSE(file.ok());
      EXPECT_EQ(file.status().code(), ErrorCode::kInvalidArgument);
      EXPECT_TRUE(Contains(file.status(), name)) << file.status().message();
    }
  }
  EXPECT_FALSE(fs::exists(folder.File("elsewhere")));
}

}  // namespace
}  // namespace marea
