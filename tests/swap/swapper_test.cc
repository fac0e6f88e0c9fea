// The swapper under a virtual clock, on one thread: every placement of a small plan, every byte
// checked by the ops themselves; faults of the drive; and plans that residency must contradict.
#include "swap/swapper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/units.h"
#include "swap/executor.h"
#include "swap/plan_waits.h"
#include "swap/shard_access.h"
#include "swap/store_layout.h"
#include "swap/swap_stats.h"
#include "swap/tier_store.h"
#include "tests/fakes/faulty_block_device.h"
#include "tests/fakes/virtual_clock.h"
#include "tests/swap/small_plan.h"
#include "tests/swap/test_pages.h"

namespace marea {
namespace {

// Chunk transfers of a store that the test polls.
class StoreIo final : public ChunkIo {
 public:
  explicit StoreIo(TierStore& store) : store_(store) {}
  void Start(const ChunkTransfer& transfer, ChunkDone done) override {
    store_.Start(transfer, std::move(done));
  }

 private:
  TierStore& store_;
};

// Copies and engine ops that take a random time. Ops of one lane end in order, as threads' would.
class ClockedRunner final : public DeviceCopy, public OpRunner {
 public:
  ClockedRunner(VirtualClock& clock, const SmallPlanEngine& engine, uint64_t seed)
      : clock_(clock), engine_(engine), random_(seed) {}

  void Start(std::span<std::byte> destination, std::span<const std::byte> source,
             CopyDirection direction, const OpCall* /*call*/, Completion done) override {
    After(direction == CopyDirection::kToDevice ? Lane::kH2d : Lane::kD2h, [=] {
      std::memcpy(destination.data(), source.data(), source.size());
      done(Status::Ok());
    });
  }
  void Start(const OpCall& call, Completion done) override {
    ++engine_ops_;
    const bool fails = engine_ops_ == fail_engine_op_;
    After(call.op().lane,
          [=, this] { done(fails ? Status::Failed("the engine gave up") : engine_.Run(call)); });
  }
  void FailEngineOp(uint64_t number) { fail_engine_op_ = number; }

 private:
  void After(Lane lane, VirtualClock::Event event) {
    VirtualClock::Nanoseconds& free = lane_free_[static_cast<size_t>(lane)];
    free = std::max(free, clock_.now()) + random_() % 300'000;
    clock_.Schedule(free, std::move(event));
  }

  VirtualClock& clock_;
  const SmallPlanEngine& engine_;
  std::mt19937_64 random_;
  std::array<VirtualClock::Nanoseconds, kLaneCount> lane_free_{};
  uint64_t engine_ops_ = 0;
  uint64_t fail_engine_op_ = 0;
};

// A plan, its stores and arenas, and a swapper over them, driven by the clock alone.
class Rig {
 public:
  Rig(const SmallPlanSpec& spec, StepPlan plan, std::vector<StepMask> masks,
      FaultyDeviceOptions device)
      : plan_(std::move(plan)),
        masks_(std::move(masks)),
        table_(MakeChunkTable(plan_)),
        engine_(spec, masks_),
        runner_(clock_, engine_, device.seed + 1),
        stats_(plan_, [this] { return static_cast<double>(clock_.now()) * 1e-9; }) {
    const StorePath path{.path = "/nvme/a", .bytes_max = kGiB};
    layout_ = LayOutStore(table_, std::span(&path, 1), 2).value();
    device.file_bytes = {layout_.paths[0].file_bytes};
    device_ = std::make_unique<FaultyBlockDevice>(clock_, device);
    store_ = std::make_unique<TierStore>(table_, layout_.paths[0], 2, *device_, 0);
    io_ = std::make_unique<StoreIo>(*store_);
    for (const Space space : {Space::kVram, Space::kRam, Space::kScalar}) {
      const auto index = static_cast<size_t>(space);
      arenas_[index].emplace(plan_.space_bytes[index]);
      bases_[index] = arenas_[index]->data();
    }
    bounce_.emplace(table_.chunk_bytes_max());
    swapper_ = std::make_unique<Swapper>(SwapperParts{plan_, table_, io_.get(), runner_, runner_});
    access_ = std::make_unique<ShardAccess>(*swapper_, bases_, bounce_->span(),
                                            [this] { ASSERT_TRUE(Advance()); });
  }

  // One thing happens; false if nothing is left to happen.
  bool Advance() {
    if (store_->Poll(ReapWait::kNo) > 0) return true;
    return clock_.RunNext();
  }

  // All turns, at most two in flight. The run's Status.
  Status RunTurns() {
    Executor::Options options;
    options.bases = bases_;
    options.clock = [this] { return static_cast<double>(clock_.now()) * 1e-9; };
    options.observers = {&stats_};
    Executor executor(plan_, *swapper_, options);
    for (const StepMask& mask : masks_) {
      const uint64_t turn = executor.Enqueue(mask);
      while (!executor.failed() && executor.turns_retired() + 1 < turn && Advance()) {
      }
    }
    while (Advance()) {
    }
    return executor.Drain();
  }

  StepPlan plan_;
  const std::vector<StepMask> masks_;
  ChunkTable table_;
  VirtualClock clock_;
  SmallPlanEngine engine_;
  ClockedRunner runner_;
  SwapStats stats_;
  StoreLayout layout_;
  std::unique_ptr<FaultyBlockDevice> device_;
  std::unique_ptr<TierStore> store_;
  std::unique_ptr<StoreIo> io_;
  std::array<std::optional<TestPages>, kSpaceCount> arenas_;
  std::array<std::byte*, kSpaceCount> bases_{};
  std::optional<TestPages> bounce_;
  std::unique_ptr<Swapper> swapper_;
  std::unique_ptr<ShardAccess> access_;
};

void ExpectNames(const Status& status, std::initializer_list<std::string> words) {
  EXPECT_FALSE(status.ok());
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "'" << word << "' is missing in: " << status.message();
  }
}

SmallPlanSpec SpecFor(uint64_t seed) {
  constexpr Space kSpaces[] = {Space::kVram, Space::kRam, Space::kFile};
  SmallPlanSpec spec;
  spec.weight = kSpaces[seed % 3];
  spec.moment = kSpaces[seed / 3 % 3];
  spec.gradient = kSpaces[seed / 9 % 3];
  spec.first_group_frozen = seed / 27 % 2 == 1;
  spec.group_count = 2 + static_cast<uint32_t>(seed % 3);
  spec.chunk_count = 1 + static_cast<uint32_t>(seed / 2 % 3);
  spec.chunk_elements = seed % 4 == 0 ? 1024 : 1500;
  return spec;
}

TEST(SwapperTest, EveryPlacementMovesEveryByteRight) {
  for (uint64_t seed = 0; seed < 108; ++seed) {
    SCOPED_TRACE(seed);
    const SmallPlanSpec spec = SpecFor(seed);
    FaultyDeviceOptions device;
    device.seed = seed;
    device.latency_max = 1'000 + seed % 7 * 200'000;
    device.latency_min = 0;
    device.short_transfer_probability = 0.1;
    device.eagain_probability = 0.05;
    Rig rig(spec, MakeSmallPlan(spec), SmallPlanMasks(4), device);
    Status status = rig.engine_.Initialise(*rig.access_);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const ChunkHome& home : rig.layout_.paths[0].homes) {
      rig.device_->FailRange(0, IoDirection::kRead, home.slot_offset[0], home.bytes, EIO,
                             FaultCount::kOnce);
    }
    status = rig.RunTurns();
    ASSERT_TRUE(status.ok()) << status.message();
    status = rig.engine_.CheckFinal(*rig.access_);
    EXPECT_TRUE(status.ok()) << status.message();
    status = rig.swapper_->Shutdown();
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(SwapperTest, TheSameSeedTakesTheSameTime) {
  const auto run = [] {
    FaultyDeviceOptions device;
    device.seed = 5;
    Rig rig({}, MakeSmallPlan({}), SmallPlanMasks(3), device);
    EXPECT_TRUE(rig.engine_.Initialise(*rig.access_).ok());
    EXPECT_TRUE(rig.RunTurns().ok());
    EXPECT_TRUE(rig.swapper_->Shutdown().ok());
    return rig.clock_.now();
  };
  EXPECT_EQ(run(), run());
}

TEST(SwapperTest, CountsWhatEachLaneMoved) {
  const SmallPlanSpec spec;
  const uint64_t chunks = spec.group_count * spec.chunk_count;
  const uint64_t chunk_bytes = spec.chunk_elements * 4;
  Rig rig(spec, MakeSmallPlan(spec), {{.train = true, .micro_count = 1}, {.update = true}}, {});
  ASSERT_TRUE(rig.engine_.Initialise(*rig.access_).ok());
  const SwapSnapshot before = rig.stats_.Snapshot();
  ASSERT_TRUE(rig.RunTurns().ok());
  const SwapSnapshot moved = Difference(rig.stats_.Snapshot(), before);
  const auto lane = [&](Lane which) { return moved[static_cast<size_t>(which)]; };
  // Turn 0 reads the weights twice; turn 1 reads weight, moment and gradient.
  EXPECT_EQ(lane(Lane::kNvmeRead).op_count, 5 * chunks);
  EXPECT_EQ(lane(Lane::kNvmeRead).bytes, 5 * chunks * chunk_bytes);
  // Turn 0 writes the gradient, turn 1 weight and moment.
  EXPECT_EQ(lane(Lane::kNvmeWrite).bytes, 3 * chunks * chunk_bytes);
  EXPECT_EQ(lane(Lane::kH2d).bytes, 2 * chunks * chunk_bytes);
  EXPECT_EQ(lane(Lane::kD2h).bytes, chunks * chunk_bytes);
  EXPECT_EQ(lane(Lane::kCpu).op_count, chunks);
  EXPECT_EQ(lane(Lane::kCompute).bytes, 0u);
  for (const Lane which : {Lane::kNvmeRead, Lane::kNvmeWrite, Lane::kH2d, Lane::kCompute}) {
    EXPECT_GT(lane(which).busy_seconds, 0.0);
    EXPECT_LE(lane(which).busy_seconds, static_cast<double>(rig.clock_.now()) * 1e-9);
  }
}

TEST(SwapperTest, EioNamesOpShardPathAndOffsetAndLeavesNoLease) {
  const SmallPlanSpec spec;
  for (const IoDirection direction : {IoDirection::kRead, IoDirection::kWrite}) {
    for (uint32_t chunk = 0; chunk < 6; ++chunk) {
      Rig rig(spec, MakeSmallPlan(spec), SmallPlanMasks(3), {});
      ASSERT_TRUE(rig.engine_.Initialise(*rig.access_).ok());
      const ChunkHome& home = rig.layout_.paths[0].homes[chunk];
      rig.device_->FailRange(0, direction, home.slot_offset[0], kPageBytes, EIO,
                             FaultCount::kAlways);
      const Status status = rig.RunTurns();
      EXPECT_EQ(status.code(), ErrorCode::kIo);
      ExpectNames(status, {"/nvme/a", Describe(rig.table_.entries[home.chunk].id),
                           std::to_string(home.slot_offset[0])});
      const Status shutdown = rig.swapper_->Shutdown();
      EXPECT_TRUE(shutdown.ok()) << shutdown.message();
      EXPECT_EQ(rig.store_->pending(), 0u);
      if (direction == IoDirection::kRead) continue;
      // What did not arrive at home is not there to be read.
      const ShardChunk& id = rig.table_.entries[home.chunk].id;
      ExpectNames(rig.swapper_->BeginHomeRead(rig.swapper_->RowsOf(id.kind, id.group)[id.chunk]),
                  {Describe(id), "empty"});
    }
  }
}

TEST(SwapperTest, BitRotBetweenTurnsIsCorrupt) {
  const SmallPlanSpec spec;
  Rig rig(spec, MakeSmallPlan(spec), SmallPlanMasks(2), {});
  ASSERT_TRUE(rig.engine_.Initialise(*rig.access_).ok());
  rig.device_->FlipBit(0, rig.layout_.paths[0].homes[0].slot_offset[0] + 100, 3);
  const Status status = rig.RunTurns();
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  ExpectNames(status, {"/nvme/a", "weight of group 0, chunk 0", "checksum"});
  EXPECT_TRUE(rig.swapper_->Shutdown().ok());
}

TEST(SwapperTest, AFailedEngineOpEndsTheRunWhereverItStands) {
  const SmallPlanSpec spec;
  for (uint64_t number = 1; number < 40; ++number) {
    SCOPED_TRACE(number);
    Rig rig(spec, MakeSmallPlan(spec), SmallPlanMasks(3), {});
    ASSERT_TRUE(rig.engine_.Initialise(*rig.access_).ok());
    rig.runner_.FailEngineOp(number);
    ExpectNames(rig.RunTurns(), {"the engine gave up"});
    const Status shutdown = rig.swapper_->Shutdown();
    EXPECT_TRUE(shutdown.ok()) << shutdown.message();
  }
}

// Plans that say one thing and do another: residency contradicts, in a sentence.
class ContradictionTest : public ::testing::Test {
 protected:
  // Runs the plan after `change` has been done to its first op of this kind and group 1.
  Status Run(OpKind kind, const std::function<void(Op&)>& change, const SmallPlanSpec& spec = {}) {
    StepPlan plan = MakeSmallPlan(spec);
    const auto op = std::find_if(plan.ops.begin(), plan.ops.end(), [&](const Op& candidate) {
      return candidate.kind == kind && candidate.group == 1;
    });
    change(*op);
    Rig rig(spec, std::move(plan), SmallPlanMasks(3), {});
    EXPECT_TRUE(rig.engine_.Initialise(*rig.access_).ok());
    Status status = rig.RunTurns();
    const Status shutdown = rig.swapper_->Shutdown();
    EXPECT_TRUE(shutdown.ok() || status.ok()) << shutdown.message();
    return status.ok() ? shutdown : status;
  }
  static void Skip(Op& op) { op.when = When::kIfEval; }
};

TEST_F(ContradictionTest, AFillThatIsMissing) {
  ExpectNames(Run(OpKind::kCopyIn, Skip),
              {"forward", "weight of group 1, chunk 0", "nothing was put there"});
  ExpectNames(Run(OpKind::kRead, Skip), {"copy_in", "weight of group 1, chunk 0"});
}

TEST_F(ContradictionTest, AWriteBackThatIsMissing) {
  ExpectNames(Run(OpKind::kWrite, Skip), {"weight of group 1, chunk 0", "would be lost"});
}

TEST_F(ContradictionTest, AHomeReadWhileItsNewestBytesAreElsewhere) {
  // The gradient is produced in VRAM and never sent to its home in RAM.
  SmallPlanSpec spec;
  spec.gradient = Space::kRam;
  ExpectNames(Run(OpKind::kCopyOut, Skip, spec), {"gradient of group 1, chunk 0", "would be lost"});
}

TEST_F(ContradictionTest, AReadOfAHomeThatHoldsNothing) {
  const SmallPlanSpec spec;
  Rig rig(spec, MakeSmallPlan(spec), SmallPlanMasks(2), {});
  ExpectNames(rig.RunTurns(), {"weight of group 0, chunk 0", "empty", "fetch"});
  EXPECT_TRUE(rig.swapper_->Shutdown().ok());
}

TEST(SwapperDeathTest, AStagingValueThatIsNotPageAlignedStopsTheProcess) {
  StepPlan plan = MakeSmallPlan({});
  for (Buffer& buffer : plan.buffers) {
    if (buffer.ring != kHomeRing && buffer.space == Space::kRam) buffer.offset += 512;
  }
  EXPECT_DEATH(Rig({}, std::move(plan), SmallPlanMasks(1), {}), "whole pages");
}

TEST(ShardAccessTest, ReadsAndWritesWholePiecesOfEveryHome) {
  for (const Space space : {Space::kVram, Space::kRam, Space::kFile}) {
    SmallPlanSpec spec;
    spec.weight = space;
    Rig rig(spec, MakeSmallPlan(spec), SmallPlanMasks(1), {});
    const auto chunks = rig.access_->Chunks(ShardKind::kWeight, 1);
    ASSERT_FALSE(chunks.empty());
    uint64_t bytes = 0;
    for (const ShardChunk& chunk : chunks) {
      EXPECT_EQ(chunk.first_byte, bytes);
      bytes += chunk.bytes;
    }
    EXPECT_EQ(bytes, spec.chunk_count * spec.chunk_elements * 4);
    std::vector<std::byte> written(bytes), read(bytes);
    std::mt19937 random(1);
    for (std::byte& byte : written) byte = static_cast<std::byte>(random());
    ExpectNames(rig.access_->Read(ShardKind::kWeight, 1, 0, read), {"weight of group 1", "empty"});
    ASSERT_TRUE(rig.access_->Write(ShardKind::kWeight, 1, 0, written).ok());
    ASSERT_TRUE(rig.access_->Read(ShardKind::kWeight, 1, 0, read).ok());
    EXPECT_EQ(read, written);
    std::vector<std::byte> middle(bytes / 2);  // any range may be read
    ASSERT_TRUE(rig.access_->Read(ShardKind::kWeight, 1, bytes / 4, middle).ok());
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), written.begin() + bytes / 4));
    EXPECT_FALSE(rig.access_->Read(ShardKind::kWeight, 1, bytes - 4, middle).ok());
    EXPECT_FALSE(rig.access_->Write(ShardKind::kWeight, 1, 4, written).ok());
    EXPECT_FALSE(rig.access_->Read(ShardKind::kMasterLow, 1, 0, middle).ok());
    EXPECT_TRUE(rig.swapper_->Shutdown().ok());
  }
}

}  // namespace
}  // namespace marea
