// The swapper with real threads, real files and the machine's own block device: what the simulation
// cannot see are races. Run under the thread sanitizer too.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "io/steady_seconds.h"
#include "io/units.h"
#include "swap/executor.h"
#include "swap/lane_thread.h"
#include "swap/memcpy_device_copy.h"
#include "swap/nvme_tier.h"
#include "swap/shard_access.h"
#include "swap/swap_stats.h"
#include "swap/swapper.h"
#include "tests/swap/small_plan.h"
#include "tests/swap/test_pages.h"

namespace marea {
namespace {

// A folder on the disk that holds the build, gone at the end: the system's own temporary folder may
// be memory, which is no tier.
class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::current_path() / "nvme-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

 private:
  std::string path_;
};

// The overlay of a container may refuse direct I/O; the path of the bytes is not what is tested.
NvmeTierOptions Options(StoreFiles at_end = StoreFiles::kRemove) {
  NvmeTierOptions options;
  options.slots = 2;
  options.at_end = at_end;
  options.file.buffered = BufferedIo::kAllow;
  return options;
}

// Engine's lanes: a thread for compute and one for the optimizer.
class ThreadedEngine final : public OpRunner {
 public:
  explicit ThreadedEngine(const SmallPlanEngine& engine)
      : engine_(engine), compute_("test-compute", 8), cpu_("test-cpu", 8) {}
  void Start(const OpCall& call, Completion done) override {
    LaneThread& lane = call.op().lane == Lane::kCpu ? cpu_ : compute_;
    lane.Post([this, call, done = std::move(done)] { done(engine_.Run(call)); });
  }

 private:
  const SmallPlanEngine& engine_;
  LaneThread compute_;
  LaneThread cpu_;
};

// A whole run over `paths`; `between` is called half way, when nothing is in flight.
Status RunAll(const SmallPlanSpec& spec, const std::vector<StorePath>& paths, uint32_t turns,
              const std::function<void(const NvmeTier&)>& between = {}) {
  const StepPlan plan = MakeSmallPlan(spec);
  const ChunkTable table = MakeChunkTable(plan);
  const std::vector<StepMask> masks = SmallPlanMasks(turns);
  const SmallPlanEngine arithmetic(spec, masks);
  TestPages vram(plan.space_bytes[static_cast<size_t>(Space::kVram)]);
  TestPages ram(plan.space_bytes[static_cast<size_t>(Space::kRam)]);
  TestPages bounce(table.chunk_bytes_max());
  std::array<std::byte*, kSpaceCount> bases{};
  bases[static_cast<size_t>(Space::kVram)] = vram.span().data();
  bases[static_cast<size_t>(Space::kRam)] = ram.span().data();
  const std::array buffers = {ram.span(), bounce.span()};
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<NvmeTier> tier,
                         NvmeTier::Create(table, paths, buffers, Options()));
  MemcpyDeviceCopy copies;
  ThreadedEngine engine(arithmetic);
  SwapStats stats(plan, SteadySeconds);
  Swapper swapper({plan, table, tier.get(), copies, engine});
  ShardAccess access(swapper, bases, bounce.span());
  Status status = arithmetic.Initialise(access);
  if (status.ok()) {
    Executor executor(plan, swapper,
                      {.bases = bases, .clock = SteadySeconds, .observers = {&stats}});
    for (size_t i = 0; i < masks.size(); ++i) {
      if (i == masks.size() / 2 && between) {
        (void)executor.Drain();
        between(*tier);
      }
      const uint64_t turn = executor.Enqueue(masks[i]);
      if (turn > 0 && !executor.WaitForTurn(turn - 1).ok()) break;  // two turns at once
    }
    status = executor.Drain();
  }
  const bool finished = status.ok();
  if (finished) status = arithmetic.CheckFinal(access);
  const Status leases = swapper.Shutdown();
  EXPECT_TRUE(leases.ok()) << leases.message();
  const Status down = tier->Shutdown();
  EXPECT_TRUE(down.ok()) << down.message();
  copies.Shutdown();
  if (finished) {
    EXPECT_GT(stats.Snapshot()[static_cast<size_t>(Lane::kNvmeRead)].bytes, 0u);
  }
  return status;
}

TEST(SwapperThreadsTest, PlacementsPagedThroughFiles) {
  const Space spaces[] = {Space::kFile, Space::kRam, Space::kVram};
  for (int i = 0; i < 6; ++i) {
    SmallPlanSpec spec;
    spec.group_count = 4;
    spec.chunk_count = 3;
    spec.chunk_elements = 5000;
    spec.weight = spaces[i % 3];
    spec.gradient = spaces[i / 2];
    spec.first_group_frozen = i % 2 == 1;
    Folder a, b;
    const std::vector<StorePath> paths = {{a.path(), kGiB, 1.0}, {b.path(), kGiB, 2.0}};
    const Status status = RunAll(spec, paths, 12);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(a.Names().empty()) << "a file is left behind";
    EXPECT_TRUE(b.Names().empty());
  }
}

TEST(SwapperThreadsTest, BytesThatChangeOnTheDriveAreCorrupt) {
  Folder folder;
  const Status status = RunAll({}, {{folder.path(), kGiB, 1.0}}, 6, [&](const NvmeTier& tier) {
    std::fstream file(folder.path() + "/marea.arena",
                      std::ios::binary | std::ios::in | std::ios::out);
    const ChunkHome& home = tier.layout().paths[0].homes[1];
    for (uint32_t slot = 0; slot < home.slot_count; ++slot) {
      file.seekp(static_cast<std::streamoff>(home.slot_offset[slot] + 17));
      file.put('\x5a');
    }
  });
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  EXPECT_NE(status.message().find(folder.path()), std::string::npos) << status.message();
}

ChunkTable ManyChunks(uint32_t count) {
  ChunkTable table;
  for (uint32_t i = 0; i < count; ++i) {
    table.entries.push_back({.id = {.group = i, .bytes = 3 * kPageBytes - 100}, .updated = true});
  }
  return table;
}

TEST(NvmeTierTest, ManyThreadsStartTransfers) {
  constexpr uint32_t kChunks = 32, kThreads = 4;
  const ChunkTable table = ManyChunks(kChunks);
  Folder a, b;
  const std::vector<StorePath> paths = {{a.path(), kGiB, 1.0}, {b.path(), kGiB, 1.0}};
  std::vector<std::unique_ptr<TestPages>> memory;
  std::vector<std::span<std::byte>> buffers;
  for (uint32_t i = 0; i < kChunks; ++i) {
    memory.push_back(std::make_unique<TestPages>(3 * kPageBytes));
    buffers.push_back(memory.back()->span());
  }
  Result<std::unique_ptr<NvmeTier>> made = NvmeTier::Create(table, paths, buffers, Options());
  ASSERT_TRUE(made.ok()) << made.status().message();
  NvmeTier& tier = *made.value();
  ASSERT_NE(tier.mode(), nullptr);
  std::atomic<uint32_t> done{0}, wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t chunk = t; chunk < kChunks; chunk += kThreads) {
        std::memset(buffers[chunk].data(), static_cast<int>(chunk + 1), buffers[chunk].size());
        tier.Start({IoDirection::kWrite, chunk, buffers[chunk]}, [&, chunk](Status status) {
          if (!status.ok()) ++wrong;
          std::memset(buffers[chunk].data(), 0, buffers[chunk].size());
          // From the I/O thread itself, into the same memory.
          tier.Start({IoDirection::kRead, chunk, buffers[chunk]}, [&, chunk](Status read) {
            if (!read.ok() || buffers[chunk][5] != static_cast<std::byte>(chunk + 1)) ++wrong;
            ++done;
          });
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (done < kChunks) std::this_thread::yield();
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(tier.Shutdown().ok());
  EXPECT_TRUE(tier.Shutdown().ok());  // harmless to repeat
}

TEST(NvmeTierTest, ShutdownFinishesWhatWasStarted) {
  const ChunkTable table = ManyChunks(16);
  Folder folder;
  TestPages memory(3 * kPageBytes);
  const std::array buffers = {memory.span()};
  const std::vector<StorePath> paths = {{folder.path(), kGiB, 1.0}};
  auto made = NvmeTier::Create(table, paths, buffers, Options());
  ASSERT_TRUE(made.ok()) << made.status().message();
  std::atomic<int> done{0};
  for (uint32_t chunk = 0; chunk < 16; ++chunk) {
    made.value()->Start({IoDirection::kWrite, chunk, memory.span()}, [&](Status status) {
      EXPECT_TRUE(status.ok());
      ++done;
    });
  }
  EXPECT_TRUE(made.value()->Shutdown().ok());
  EXPECT_EQ(done, 16);
}

TEST(NvmeTierTest, AKeptFileHoldsItsSuperblock) {
  const ChunkTable table = ManyChunks(3);
  Folder folder;
  const std::vector<StorePath> paths = {{folder.path(), kGiB, 1.0}};
  RunUuid uuid{};
  StoreGeometry geometry;
  {
    auto made = NvmeTier::Create(table, paths, {}, Options(StoreFiles::kKeep));
    ASSERT_TRUE(made.ok()) << made.status().message();
    uuid = made.value()->run_uuid();
    geometry = GeometryFor(made.value()->layout(), 0, table);
  }
  const std::string path = folder.path() + "/marea.arena";
  EXPECT_EQ(std::filesystem::file_size(path), geometry.file_bytes);
  std::vector<std::byte> pages(2 * kPageBytes);
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(pages.data()), 2 * kPageBytes);
  const auto read = ReadSuperblock(std::span<const std::byte, 2 * kPageBytes>(pages), path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().epoch, 0u);
  EXPECT_TRUE(CheckSuperblock(read.value(), uuid, geometry, path).ok());
}

TEST(NvmeTierTest, AFailedStartLeavesNothingBehind) {
  const ChunkTable table = ManyChunks(8);
  Folder good;
  const std::vector<StorePath> paths = {{good.path(), kGiB, 1.0},
                                        {good.path() + "/missing", kGiB, 1.0}};
  for (const StoreFiles at_end : {StoreFiles::kRemove, StoreFiles::kKeep}) {
    const auto made = NvmeTier::Create(table, paths, {}, Options(at_end));
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.status().message().find("missing"), std::string::npos);
    EXPECT_TRUE(good.Names().empty());
  }
}

TEST(NvmeTierTest, APathHeldByAnotherRunIsBusy) {
  const ChunkTable table = ManyChunks(2);
  Folder folder;
  const std::vector<StorePath> paths = {{folder.path(), kGiB, 1.0}};
  const auto first = NvmeTier::Create(table, paths, {}, Options());
  ASSERT_TRUE(first.ok());
  const auto second = NvmeTier::Create(table, paths, {}, Options());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), ErrorCode::kBusy) << second.status().message();
  EXPECT_EQ(folder.Names().size(), 1u) << "the holder's file must stay";
}

TEST(LaneThreadTest, RunsTasksInOrderAndFinishesThemAtShutdown) {
  std::vector<int> ran;
  LaneThread lane("test-lane", 100);
  for (int i = 0; i < 100; ++i) lane.Post([&ran, i] { ran.push_back(i); });
  lane.Shutdown();
  lane.Shutdown();
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
}

TEST(SwapStatsTest, BusyIsTheUnionOfOpsInFlight) {
  StepPlan plan;
  for (const uint64_t bytes : {10, 20}) {
    plan.ops.push_back({.kind = OpKind::kRead,
                        .lane = Lane::kNvmeRead,
                        .accesses = {{0, 0, bytes, AccessMode::kRead}}});
  }
  double now = 0;
  SwapStats stats(plan, [&now] { return now; });
  const auto read = [&] { return stats.Snapshot()[static_cast<size_t>(Lane::kNvmeRead)]; };
  stats.OnBegin(0, 0, now);
  now = 1;
  stats.OnBegin(1, 0, now);
  now = 3;
  stats.OnComplete(0, 0, now);
  EXPECT_EQ(read().busy_seconds, 3.0);  // one is still in flight
  now = 4;
  stats.OnComplete(1, 0, now);
  now = 10;
  EXPECT_EQ(read().busy_seconds, 4.0);
  EXPECT_EQ(read().bytes, 30u);
  EXPECT_EQ(read().op_count, 2u);
}

}  // namespace
}  // namespace marea
