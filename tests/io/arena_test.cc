#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <vector>

#include "io/memory_limits.h"
#include "io/pinned_arena.h"
#include "io/topology.h"
#include "io/units.h"
#include "tests/io/child_process.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MAREA_TEST_SANITIZED 1
#else
#define MAREA_TEST_SANITIZED 0
#endif

namespace marea {
namespace {

ArenaOptions Options(uint64_t bytes) {
  ArenaOptions options;
  options.bytes = bytes;
  return options;
}

class CountingRegistrar : public MemoryRegistrar {
 public:
  Status Register(std::span<std::byte> memory) override {
    if (refuse) return Status::Unavailable("no device");
    registered.push_back(memory.data());
    bytes += memory.size();
    return Status::Ok();
  }
  Status Unregister(std::span<std::byte> memory) override {
    EXPECT_EQ(registered.back(), memory.data());
    registered.pop_back();
    bytes -= memory.size();
    memory[0] = std::byte{1};  // still mapped
    return Status::Ok();
  }
  bool refuse = false;
  std::vector<std::byte*> registered;
  uint64_t bytes = 0;
};

TEST(ArenaTest, RoundsToPagesAndNothingMore) {
  for (const uint64_t bytes : {uint64_t{1}, kPageBytes, 3 * kMiB + 1, 130 * kMiB}) {
    Result<PinnedArena> arena = PinnedArena::Create(Options(bytes));
    ASSERT_TRUE(arena.ok()) << arena.status().message();
    const std::span<std::byte> memory = arena.value().bytes();
    EXPECT_EQ(memory.size(), RoundUp(bytes, kPageBytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % (2 * kMiB), 0u);
    memory.front() = memory.back() = std::byte{1};
  }
}

TEST(ArenaTest, EveryPageExistsAtOnce) {
  constexpr uint64_t kBytes = 100 * kMiB + kPageBytes;
  for (const uint32_t threads : {1u, 4u}) {
    ArenaOptions options = Options(kBytes);
    options.touch_threads = threads;
    Result<PinnedArena> arena = PinnedArena::Create(options);
    ASSERT_TRUE(arena.ok());
    const std::span<std::byte> memory = arena.value().bytes();
    std::vector<unsigned char> resident(memory.size() / kPageBytes);
    ASSERT_EQ(::mincore(memory.data(), memory.size(), resident.data()), 0);
    for (const unsigned char page : resident) ASSERT_EQ(page & 1, 1);
  }
}

// Note [Whole huge pages]: whoever registers the arena finds no page of 4 KiB at its end.
TEST(ArenaTest, TheLastHugePageIsWhole) {
  constexpr uint64_t kHugePageBytes = 2 * kMiB;
  Result<PinnedArena> arena = PinnedArena::Create(Options(64 * kMiB + kPageBytes));
  ASSERT_TRUE(arena.ok());
  std::byte* const rest = arena.value().bytes().data() + arena.value().bytes().size();
  std::vector<unsigned char> resident((kHugePageBytes - kPageBytes) / kPageBytes);
  ASSERT_EQ(::mincore(rest, resident.size() * kPageBytes, resident.data()), 0);
  for (const unsigned char page : resident) ASSERT_EQ(page & 1, 1);
}

TEST(ArenaTest, GivesItsMemoryBack) {
  const uint64_t before = ReadProcessMemory().value().resident_bytes;
  Result<PinnedArena> arena = PinnedArena::Create(Options(64 * kMiB));
  ASSERT_TRUE(arena.ok());
  EXPECT_GE(ReadProcessMemory().value().resident_bytes, before + 60 * kMiB);
  EXPECT_GE(ReadProcessMemory().value().peak_resident_bytes, before + 60 * kMiB);
  PinnedArena moved = std::move(arena).value();
  EXPECT_EQ(moved.bytes().size(), 64 * kMiB);
  EXPECT_TRUE(moved.Shutdown().ok());
  EXPECT_TRUE(moved.Shutdown().ok());
  EXPECT_TRUE(moved.bytes().empty());
  EXPECT_LE(ReadProcessMemory().value().resident_bytes, before + 8 * kMiB);
}

TEST(ArenaTest, RegistersAndUnregisters) {
  CountingRegistrar registrar;
  ArenaOptions options = Options(3 * kMiB);
  options.registrar = &registrar;
  Result<PinnedArena> arena = PinnedArena::Create(options);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(registrar.bytes, 3 * kMiB);
  PinnedArena moved = std::move(arena).value();
  EXPECT_EQ(registrar.bytes, 3 * kMiB);
  EXPECT_TRUE(moved.Shutdown().ok());
  EXPECT_EQ(registrar.bytes, 0u);
}

TEST(ArenaTest, ARefusedRegistrationIsAStatusWithNumbers) {
  CountingRegistrar registrar;
  registrar.refuse = true;
  ArenaOptions options = Options(3 * kMiB);
  options.registrar = &registrar;
  const Result<PinnedArena> arena = PinnedArena::Create(options);
  ASSERT_FALSE(arena.ok());
  EXPECT_NE(arena.status().message().find("3145728 bytes"), std::string::npos);
  EXPECT_NE(arena.status().message().find("no device"), std::string::npos);
}

TEST(ArenaDeathTest, ARegisteredArenaNeedsAShutdown) {
  EXPECT_DEATH(
      {
        CountingRegistrar registrar;
        ArenaOptions options = Options(kMiB);
        options.registrar = &registrar;
        const Result<PinnedArena> arena = PinnedArena::Create(options);
      },
      "before Shutdown");
}

TEST(ArenaTest, BindsToANode) {
  const Topology topology = ReadTopology().value();
  ArenaOptions options = Options(8 * kMiB);
  options.numa_node = topology.nodes.front().index;
  Result<PinnedArena> arena = PinnedArena::Create(options);
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  EXPECT_EQ(arena.value().bytes().size(), 8 * kMiB);
  options.numa_node = 4711;
  const Result<PinnedArena> absent = PinnedArena::Create(options);
  ASSERT_FALSE(absent.ok());
  EXPECT_NE(absent.status().message().find("4711"), std::string::npos);
}

TEST(ArenaTest, RefusesWhatTheMachineCannotHold) {
  for (const uint64_t bytes : {uint64_t{1} << 50, UINT64_MAX, uint64_t{0}}) {
    const Result<PinnedArena> arena = PinnedArena::Create(Options(bytes));
    ASSERT_FALSE(arena.ok());
    EXPECT_EQ(arena.status().code(),
              bytes == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kDoesNotFit);
    EXPECT_NE(arena.status().message().find(std::to_string(bytes)), std::string::npos);
  }
}

TEST(ArenaTest, ARefusedMappingIsAStatusWithNumbers) {
  if (MAREA_TEST_SANITIZED) GTEST_SKIP() << "sanitizers need the address space";
  EXPECT_EQ(RunInChild([]() -> std::string {
              const rlimit limit{kGiB, kGiB};
              if (::setrlimit(RLIMIT_AS, &limit) != 0) return "no limit";
              const Result<PinnedArena> arena = PinnedArena::Create(Options(2 * kGiB));
              if (arena.ok()) return "it was mapped";
              if (arena.status().code() == ErrorCode::kDoesNotFit) return "";  // a small machine
              return arena.status().error_number() == ENOMEM &&
                             arena.status().message().find("2147483648") != std::string::npos
                         ? ""
                         : arena.status().message();
            }),
            "");
}

}  // namespace
}  // namespace marea
