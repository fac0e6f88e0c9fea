// Which mode a device comes up in where the kernel, a container or a limit forbids the better ones,
// and what it says about that. Each case runs in a child process with the real restriction.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/memory_limits.h"
#include "io/pinned_arena.h"
#include "io/uring_device.h"
#include "tests/io/child_process.h"
#include "tests/io/device_harness.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

constexpr long kUringSetup = 425;
constexpr long kUringEnter = 426;
constexpr long kUringRegister = 427;
constexpr uint64_t kDataBytes = 16 * kMiB;

class DeviceModesTest : public testing::Test {
 protected:
  DeviceModesTest()
      : file_(DataFile::Create(folder_.File("data"), kDataBytes).value()),
        arena_(PinnedArena::Create({.bytes = kDataBytes,
                                    .numa_node = kAnyNumaNode,
                                    .touch_threads = 1,
                                    .registrar = nullptr})
                   .value()) {}

  Result<std::unique_ptr<BlockDevice>> Make(std::optional<IoMode> mode = {}) {
    const std::array files = {DeviceFile{file_.fd(), file_.path()}};
    const std::array buffers = {arena_.bytes()};
    BlockDeviceOptions options;
    options.mode = mode;
    return MakeBlockDevice(files, buffers, options);
  }

  // Writes and reads the whole file; "" if the bytes are right.
  std::string UseDevice(BlockDevice& device) {
    const std::span<std::byte> memory = arena_.bytes();
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i / 511);
    Status status = Transfer(device, {IoDirection::kWrite, 0, 0, memory.data(), memory.size(), 1});
    if (!status.ok()) return status.message();
    std::memset(memory.data(), 0, memory.size());
    status = Transfer(device, {IoDirection::kRead, 0, 0, memory.data(), memory.size(), 2});
    if (!status.ok()) return status.message();
    for (size_t i = 0; i < memory.size(); ++i) {
      if (memory[i] != static_cast<std::byte>(i / 511)) return "wrong byte";
    }
    return "";
  }

  // The device comes up in `mode` and works; reason and remedy hold the given words.
  std::string ExpectMode(IoMode mode, const std::string& reason, const std::string& remedy) {
    auto device = Make();
    if (!device.ok()) return device.status().message();
    const IoModeReport& report = device.value()->mode();
    const std::string text =
        std::string(IoModeName(report.mode)) + " | " + report.reason + " | " + report.remedy;
    if (report.mode != mode) return "mode: " + text;
    if (report.reason.find(reason) == std::string::npos) return "reason: " + text;
    if (report.remedy.find(remedy) == std::string::npos) return "remedy: " + text;
    if (mode != IoMode::kUringRegistered && report.cost.empty()) return "no cost";
    return UseDevice(*device.value());
  }

  // Forcing `mode` fails and the message holds `cause`.
  std::string ExpectRefused(IoMode mode, const std::string& cause) {
    const auto device = Make(mode);
    if (device.ok()) return std::string(IoModeName(mode)) + " was possible";
    if (device.status().code() != ErrorCode::kUnavailable) return "wrong code";
    const std::string& text = device.status().message();
    return text.find(cause) != std::string::npos && text.find("remedy") != std::string::npos ? ""
                                                                                             : text;
  }

  TempDir folder_;
  DataFile file_;
  PinnedArena arena_;
};

#define SKIP_WITHOUT_URING()                   \
  const UringProbe uring_probe = ProbeUring(); \
  if (uring_probe.error_number != 0) GTEST_SKIP() << uring_probe.cause

TEST_F(DeviceModesTest, PrefersRegisteredBuffers) {
  SKIP_WITHOUT_URING();
  if (ReadMemoryLimits().value().memlock_bytes < 2 * kDataBytes) {
    GTEST_SKIP() << "the limit of locked memory is too small here";
  }
  EXPECT_EQ(ExpectMode(IoMode::kUringRegistered, "", ""), "");
}

TEST_F(DeviceModesTest, ATinyMemlockLimitLeavesUnregisteredUring) {
  SKIP_WITHOUT_URING();
  EXPECT_EQ(RunInChild([&]() -> std::string {
              if (!LimitLockedMemory(64 * kKiB)) return "the limit cannot be set";
              const std::string text =
                  ExpectMode(IoMode::kUring, "locked-memory limit of 64.0 KiB", "ulimit -l");
              return text.empty() ? ExpectRefused(IoMode::kUringRegistered, "64.0 KiB") : text;
            }),
            "");
}

TEST_F(DeviceModesTest, SeccompEpermLeavesThreads) {
  EXPECT_EQ(RunInChild([&]() -> std::string {
              if (!ForbidSystemCalls({kUringSetup, kUringEnter, kUringRegister}, EPERM)) {
                return "no filter";
              }
              std::string text = ExpectMode(IoMode::kPosix, "EPERM", "seccomp");
              if (text.empty()) text = ExpectRefused(IoMode::kUring, "EPERM");
              return text.empty() ? ExpectRefused(IoMode::kUringRegistered, "EPERM") : text;
            }),
            "");
}

TEST_F(DeviceModesTest, AKernelWithoutUringLeavesThreads) {
  EXPECT_EQ(RunInChild([&]() -> std::string {
              if (!ForbidSystemCalls({kUringSetup, kUringEnter, kUringRegister}, ENOSYS)) {
                return "no filter";
              }
              std::string text = ExpectMode(IoMode::kPosix, "ENOSYS", "Linux 5.10");
              return text.empty() ? ExpectRefused(IoMode::kUring, "ENOSYS") : text;
            }),
            "");
}

TEST_F(DeviceModesTest, AFilterOfEnterAloneLeavesThreads) {
  EXPECT_EQ(RunInChild([&]() -> std::string {
              if (!ForbidSystemCalls({kUringEnter}, EPERM)) return "no filter";
              return ExpectMode(IoMode::kPosix, "EPERM", "");
            }),
            "");
}

TEST_F(DeviceModesTest, ThreadsCanBeAskedFor) {
  auto device = Make(IoMode::kPosix);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device.value()->mode().mode, IoMode::kPosix);
  EXPECT_EQ(UseDevice(*device.value()), "");
}

TEST_F(DeviceModesTest, OptionsWithoutSenseAreRefused) {
  const std::array files = {DeviceFile{file_.fd(), file_.path()}};
  for (const BlockDeviceOptions& options :
       {BlockDeviceOptions{.queue_depth = 0, .request_bytes = kMiB, .capacity = 1, .mode = {}},
        BlockDeviceOptions{.queue_depth = 1, .request_bytes = 1000, .capacity = 1, .mode = {}},
        BlockDeviceOptions{.queue_depth = 1, .request_bytes = 2 * kGiB, .capacity = 1, .mode = {}},
        BlockDeviceOptions{.queue_depth = 1, .request_bytes = kMiB, .capacity = 0, .mode = {}}}) {
    const auto device = MakeBlockDevice(files, {}, options);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.status().code(), ErrorCode::kInvalidArgument);
  }
}

// The kernel reaches registered memory by its pinned pages, whatever the process may do with it;
// other memory by its address. So memory without access tells whether registration is really used.
TEST_F(DeviceModesTest, RegisteredBuffersAreUsedAsSuch) {
  SKIP_WITHOUT_URING();
  const std::span<std::byte> memory = arena_.bytes();
  for (const IoMode mode : {IoMode::kUringRegistered, IoMode::kUring}) {
    const auto device = Make(mode);
    if (!device.ok()) continue;
    for (const IoDirection direction : {IoDirection::kWrite, IoDirection::kRead}) {
      if (direction == IoDirection::kWrite) std::memset(memory.data(), 0x5a, memory.size());
      ASSERT_EQ(::mprotect(memory.data(), memory.size(), PROT_NONE), 0);
      const Status status =
          Transfer(*device.value(), {direction, 0, 0, memory.data(), memory.size(), 1});
      ASSERT_EQ(::mprotect(memory.data(), memory.size(), PROT_READ | PROT_WRITE), 0);
      EXPECT_EQ(status.error_number(), mode == IoMode::kUring ? EFAULT : 0) << status.message();
      if (direction == IoDirection::kWrite) std::memset(memory.data(), 0, memory.size());
    }
    EXPECT_EQ(memory[12345], std::byte{mode == IoMode::kUring ? uint8_t{0} : uint8_t{0x5a}});
  }
}

// A ring that breaks while it is used: everything in flight comes back with the reason.
TEST_F(DeviceModesTest, ABrokenRingDropsNothing) {
  SKIP_WITHOUT_URING();
  EXPECT_EQ(RunInChild([&]() -> std::string {
              auto device = Make(IoMode::kUring);
              if (!device.ok()) return device.status().message();
              if (std::string text = UseDevice(*device.value()); !text.empty()) return text;
              if (!ForbidSystemCalls({kUringEnter}, EPERM)) return "no filter";
              std::vector<IoRequest> requests;
              for (uint64_t i = 0; i < 8; ++i) {
                requests.push_back(
                    {IoDirection::kRead, 0, i * kMiB, arena_.bytes().data() + i * kMiB, kMiB, i});
              }
              static_cast<void>(device.value()->Submit(requests));
              std::vector<IoCompletion> done(16, IoCompletion{0, Status::Ok()});
              size_t count = 0;
              while (device.value()->in_flight() > 0) {
                count += device.value()->Reap(std::span(done).subspan(count), ReapWait::kUntilOne);
              }
              if (count != 8) return "completions: " + std::to_string(count);
              for (size_t i = 0; i < count; ++i) {
                if (done[i].status.error_number() != EPERM) return "no EPERM";
              }
              if (device.value()->Submit(requests).ok()) return "a broken ring takes requests";
              device.value()->Wake();  // still ends a blocking Reap
              return device.value()->Reap(done, ReapWait::kUntilOne) == 0 ? "" : "too many";
            }),
            "");
}

// The kernel refuses a write (EFBIG, by the process's limit of file sizes) and cuts the one before
// short: reported with path and offset in every mode, and the part that fits is resumed up to
// there.
TEST_F(DeviceModesTest, AWriteThatDoesNotFitIsReported) {
  for (const IoMode mode : {IoMode::kUringRegistered, IoMode::kUring, IoMode::kPosix}) {
    if (!Make(mode).ok()) continue;
    EXPECT_EQ(RunInChild([&]() -> std::string {
                ::signal(SIGXFSZ, SIG_IGN);
                const rlimit limit{kDataBytes + 2 * kPageBytes, kDataBytes + 2 * kPageBytes};
                if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit";
                auto device = Make(mode);
                if (!device.ok()) return device.status().message();
                const Status status = Transfer(
                    *device.value(),
                    {IoDirection::kWrite, 0, kDataBytes, arena_.bytes().data(), 4 * kPageBytes, 1});
                if (status.error_number() != EFBIG) return "no EFBIG: " + status.message();
                const std::string place = file_.path() + ": write of 8192 bytes at offset " +
                                          std::to_string(kDataBytes + 2 * kPageBytes);
                return status.message().find(place) == 0 ? "" : status.message();
              }),
              "")
        << IoModeName(mode);
  }
}

// Offsets and bytes beyond 32 bits, in a file with holes.
TEST_F(DeviceModesTest, ReachesBeyondFourGibibytes) {
  const std::string path = folder_.File("sparse");
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd.valid());
  constexpr uint64_t kEnd = 5 * kGiB;
  if (::ftruncate(fd.get(), kEnd) != 0) GTEST_SKIP() << "files end before 5 GiB here";
  for (const IoMode mode : {IoMode::kUringRegistered, IoMode::kUring, IoMode::kPosix}) {
    const std::array files = {DeviceFile{fd.get(), path}};
    const std::array buffers = {arena_.bytes()};
    BlockDeviceOptions options;
    options.mode = mode;
    const auto device = MakeBlockDevice(files, buffers, options);
    if (!device.ok()) continue;
    const uint64_t offset = 4 * kGiB - 2 * kMiB;  // across the 32-bit line
    std::byte* const data = arena_.bytes().data();
    for (uint64_t page = 0; page < 4 * kMiB / kPageBytes; ++page) {
      const uint64_t stamp = (offset + page * kPageBytes) ^ static_cast<uint64_t>(mode);
      std::memcpy(data + page * kPageBytes, &stamp, sizeof(stamp));
    }
    ASSERT_TRUE(
        Transfer(*device.value(), {IoDirection::kWrite, 0, offset, data, 4 * kMiB, 1}).ok());
    std::memset(data, 0, 4 * kMiB);
    ASSERT_TRUE(Transfer(*device.value(), {IoDirection::kRead, 0, offset, data, 4 * kMiB, 2}).ok());
    for (uint64_t page = 0; page < 4 * kMiB / kPageBytes; ++page) {
      uint64_t stamp = 0;
      std::memcpy(&stamp, data + page * kPageBytes, sizeof(stamp));
      ASSERT_EQ(stamp, (offset + page * kPageBytes) ^ static_cast<uint64_t>(mode));
    }
    // A write at 4 GiB did not land at 0.
    ASSERT_TRUE(Transfer(*device.value(), {IoDirection::kRead, 0, 0, data, kPageBytes, 3}).ok());
    uint64_t stamp = 1;
    std::memcpy(&stamp, data, sizeof(stamp));
    EXPECT_EQ(stamp, 0u);
  }
}

// Arenas above 1 GiB are registered in parts; a request across the cut is whole.
TEST_F(DeviceModesTest, ATransferAcrossTheCutOfAddresses) {
  // Reserves address space around a multiple of the cut; only the pages that are used exist.
  const auto raw =
      static_cast<std::byte*>(::mmap(nullptr, 2 * kGiB, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(raw, MAP_FAILED);
  const uint64_t cut = RoundUp(reinterpret_cast<uintptr_t>(raw) + kMiB, kGiB);
  const std::span<std::byte> memory(reinterpret_cast<std::byte*>(cut) - kMiB, 2 * kMiB);
  for (const IoMode mode : {IoMode::kUringRegistered, IoMode::kUring, IoMode::kPosix}) {
    const std::array files = {DeviceFile{file_.fd(), file_.path()}};
    const std::array buffers = {memory};
    BlockDeviceOptions options;
    options.mode = mode;
    const auto device = MakeBlockDevice(files, buffers, options);
    if (!device.ok()) continue;
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i / 4093);
    ASSERT_TRUE(Transfer(*device.value(), {IoDirection::kWrite, 0, 0, memory.data() + kPageBytes,
                                           memory.size() - kPageBytes, 1})
                    .ok());
    std::memset(memory.data(), 0xff, memory.size());
    ASSERT_TRUE(Transfer(*device.value(), {IoDirection::kRead, 0, 0, memory.data() + kPageBytes,
                                           memory.size() - kPageBytes, 2})
                    .ok());
    for (size_t i = kPageBytes; i < memory.size(); ++i) {
      ASSERT_EQ(memory[i], static_cast<std::byte>(i / 4093)) << i;
    }
  }
  ::munmap(raw, 2 * kGiB);
}

}  // namespace
}  // namespace marea
