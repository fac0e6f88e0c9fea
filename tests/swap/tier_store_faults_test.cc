// The tier store on a simulated drive that fails. Survived: delays, reordering, short transfers,
// EAGAIN, one EIO. Detected: EIO that stays, bit rot, a torn superblock.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "swap/superblock.h"
#include "swap/tier_store.h"
#include "tests/swap/tier_store_fixture.h"

namespace marea {
namespace {

TEST_F(TierStoreTest, BitRotIsCorruptAndNamesTheChunk) {
  Make(SomeChunks(2), 1);
  for (uint32_t chunk = 0; chunk < 6; ++chunk) ASSERT_TRUE(Write(chunk, chunk).ok());
  const uint64_t offset = home(4).slot_offset[0];
  device_->FlipBit(0, offset + table_.entries[4].id.bytes - 1, 6);  // the last byte that counts
  Memory memory(table_.entries[4].id.bytes);
  const Status status = Now(IoDirection::kRead, 4, memory);
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  ExpectNames(status, {"/nvme/a", "moment1 of group 1, chunk 0", std::to_string(offset)});
  ExpectHolds(3, 3);  // the others are well
  ASSERT_TRUE(Write(4, 44).ok());
  ExpectHolds(4, 44);
}

TEST_F(TierStoreTest, BitRotBehindTheChunkIsNoHarm) {
  Make(SomeChunks(1), 1);
  ASSERT_TRUE(Write(0, 1).ok());
  device_->FlipBit(0, home(0).slot_offset[0] + table_.entries[0].id.bytes, 0);
  ExpectHolds(0, 1);
}

TEST_F(TierStoreTest, EveryRottenReadIsCaught) {
  FaultyDeviceOptions options;
  options.seed = 11;
  options.bit_rot_probability = 0.3;
  Make(SomeChunks(4), 1, options);
  int caught = 0;
  for (uint32_t round = 0; round < 10; ++round) {
    for (uint32_t chunk = 0; chunk < 12; ++chunk) {
      ASSERT_TRUE(Write(chunk, round).ok());
      const uint64_t bytes = table_.entries[chunk].id.bytes;
      Memory memory(bytes);
      const Status status = Now(IoDirection::kRead, chunk, memory);
      if (status.ok()) {
        EXPECT_TRUE(memory.Same(Memory(bytes, round), bytes));
      } else {
        EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
        ++caught;
      }
    }
  }
  EXPECT_GT(caught, 0);
}

TEST_F(TierStoreTest, EioFailsEverythingAndNamesPathAndOffset) {
  FaultyDeviceOptions options;
  options.device.queue_depth = 2;
  options.device.capacity = 4;  // so that some transfers are still waiting when the drive fails
  Make(SomeChunks(4), 1, options);
  for (uint32_t chunk = 0; chunk < 12; ++chunk) ASSERT_TRUE(Write(chunk, chunk).ok());
  const uint64_t offset = home(5).slot_offset[0];
  device_->FailRange(0, IoDirection::kRead, offset, kPageBytes, EIO, FaultCount::kAlways);
  std::vector<std::unique_ptr<Memory>> memories;
  std::vector<Status> failures;
  size_t completed = 0;
  for (uint32_t round = 0; round < 2; ++round) {
    for (uint32_t chunk = 0; chunk < 12; ++chunk) {
      memories.push_back(std::make_unique<Memory>(table_.entries[chunk].id.bytes));
      store_->Start({IoDirection::kRead, chunk, memories.back()->span()}, [&](Status status) {
        ++completed;
        if (!status.ok()) failures.push_back(std::move(status));
      });
    }
  }
  while (store_->pending() > 0) (void)store_->Poll(ReapWait::kUntilOne);
  EXPECT_EQ(completed, 24u);
  ASSERT_GT(failures.size(), 12u);
  for (const Status& status : failures) {
    EXPECT_EQ(status.code(), ErrorCode::kIo);
    EXPECT_EQ(status.error_number(), EIO);
    ExpectNames(status, {"/nvme/a", "gradient of group 1, chunk 0", std::to_string(offset)});
  }
  EXPECT_FALSE(store_->status().ok());
  const Status later = Write(0, 1);  // and stays failed
  EXPECT_EQ(later.error_number(), EIO);
}

TEST_F(TierStoreTest, SurvivesShortTransfersDelaysAndOneEio) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    FaultyDeviceOptions options;
    options.seed = seed;
    options.latency_max = 1 + seed * 100'000;
    options.latency_min = 0;
    options.short_transfer_probability = 0.3;
    options.eagain_probability = 0.2;
    options.device.queue_depth = 1 + static_cast<uint32_t>(seed % 5);
    Make(SomeChunks(3), seed % 2 == 0 ? 1 : 2, options);
    for (const ChunkHome& home : layout_.paths[0].homes) {
      const IoDirection direction = seed % 3 == 0 ? IoDirection::kRead : IoDirection::kWrite;
      device_->FailRange(0, direction, home.slot_offset[0], home.bytes, EIO, FaultCount::kOnce);
    }
    RandomTraffic(seed);
    EXPECT_GT(device_->counters().retries, 9u);
    if (HasFailure()) return;
  }
}

TEST_F(TierStoreTest, SuperblocksAlternateAndAreFlushedBeforeAndAfter) {
  int flushes = 0;
  Make(SomeChunks(1), 2, {}, [&] {
    ++flushes;
    device_->Sync();
    return Status::Ok();
  });
  const RunUuid uuid = MakeRunUuid().value();
  const StoreGeometry geometry{.slots = 2, .chunk_count = 3};
  const auto write = [&](uint64_t epoch) {
    std::optional<Status> outcome;
    store_->StartSuperblock(MakeSuperblock(uuid, geometry), epoch,
                            [&](Status status) { outcome = std::move(status); });
    while (!outcome) (void)store_->Poll(ReapWait::kUntilOne);
    return *outcome;
  };
  const auto read = [&] {
    return ReadSuperblock(device_->contents(0).first<2 * kPageBytes>(), "/nvme/a");
  };
  EXPECT_FALSE(read().ok());
  for (uint64_t epoch = 0; epoch < 4; ++epoch) {
    ASSERT_TRUE(write(epoch).ok());
    EXPECT_EQ(read().value().epoch, epoch);
    EXPECT_TRUE(CheckSuperblock(read().value(), uuid, geometry, "/nvme/a").ok());
  }
  EXPECT_EQ(flushes, 8);
  // Any sector of the next one may be missing: then the epoch before it counts.
  ASSERT_TRUE(write(4).ok());
  for (int bit = 0; bit < 8; ++bit) {
    device_->FlipBit(0, 80 + 512 * bit, bit);  // torn: some sectors are not what was sealed
    EXPECT_EQ(read().value().epoch, 3u);
    device_->FlipBit(0, 80 + 512 * bit, bit);
  }
}

TEST_F(TierStoreTest, AFailedFlushFailsTheSuperblock) {
  bool fail = false;
  Make(SomeChunks(1), 1, {}, [&] { return fail ? Status::Io("fdatasync", EIO) : Status::Ok(); });
  fail = true;
  std::optional<Status> outcome;
  store_->StartSuperblock(MakeSuperblock(RunUuid{}, {}), 0,
                          [&](Status status) { outcome = std::move(status); });
  while (!outcome) (void)store_->Poll(ReapWait::kUntilOne);
  ASSERT_FALSE(outcome->ok());
  ExpectNames(*outcome, {"/nvme/a", "superblock", "fdatasync"});
  EXPECT_EQ(device_->counters().write_bytes, 0u) << "a promise was written before its bytes";
}

}  // namespace
}  // namespace marea
