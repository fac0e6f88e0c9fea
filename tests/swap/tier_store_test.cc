// The tier store on a simulated drive: what it promises, and what it says when the drive does not
// keep its side. Faults survived here: delays, reordering, short transfers, EAGAIN, one EIO. Faults
// detected: EIO that stays, bit rot, a torn superblock.
#include "swap/tier_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/units.h"
#include "tests/fakes/faulty_block_device.h"
#include "tests/fakes/virtual_clock.h"

namespace marea {
namespace {

ChunkEntry Entry(uint32_t group, ShardKind kind, uint32_t chunk, uint64_t bytes,
                 bool updated = true) {
  return {.id = {.kind = kind,
                 .group = group,
                 .chunk = chunk,
                 .first_byte = chunk * uint64_t{1} << 20,
                 .bytes = bytes},
          .updated = updated};
}

// Chunks of odd lengths, so that pages are not full.
ChunkTable SomeChunks(uint32_t groups) {
  ChunkTable table;
  for (uint32_t group = 0; group < groups; ++group) {
    table.entries.push_back(Entry(group, ShardKind::kWeight, 0, 10000 + group));
    table.entries.push_back(Entry(group, ShardKind::kMoment1, 0, 20000));
    table.entries.push_back(Entry(group, ShardKind::kGradient, 0, 4096));
  }
  return table;
}

struct PageDeleter {
  void operator()(std::byte* bytes) const {
    ::operator delete[](bytes, std::align_val_t{kPageBytes});
  }
};

// Whole pages for one chunk, filled from a seed.
class Memory {
 public:
  explicit Memory(uint64_t bytes, uint64_t seed = 0)
      : bytes_(RoundUp(bytes, kPageBytes)),
        data_(static_cast<std::byte*>(::operator new[](bytes_, std::align_val_t{kPageBytes}))) {
    Fill(seed);
  }
  void Fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint64_t i = 0; i < bytes_; ++i) data_[i] = static_cast<std::byte>(random());
  }
  std::span<std::byte> span() { return {data_.get(), bytes_}; }
  bool Same(const Memory& other, uint64_t bytes) const {
    return std::memcmp(data_.get(), other.data_.get(), bytes) == 0;
  }

 private:
  uint64_t bytes_;
  std::unique_ptr<std::byte[], PageDeleter> data_;
};

class TierStoreTest : public ::testing::Test {
 protected:
  void Make(
      ChunkTable table, uint32_t slots, FaultyDeviceOptions options = {},
      std::function<Status()> flush = [] { return Status::Ok(); }) {
    store_.reset();
    table_ = std::move(table);
    const StorePath path{.path = "/nvme/a", .bytes_max = kGiB};
    layout_ = LayOutStore(table_, std::span(&path, 1), slots).value();
    options.file_bytes = {layout_.paths[0].file_bytes};
    device_ = std::make_unique<FaultyBlockDevice>(clock_, std::move(options));
    store_ = std::make_unique<TierStore>(table_, layout_.paths[0], slots, *device_, 0,
                                         TierStoreOptions{.flush = std::move(flush)});
  }
  void TearDown() override {
    if (store_ != nullptr) {
      EXPECT_EQ(store_->pending(), 0u);
      EXPECT_EQ(device_->in_flight(), 0u);
    }
  }

  Status Now(IoDirection direction, uint32_t chunk, Memory& memory) {
    std::optional<Status> outcome;
    store_->Start({direction, chunk, memory.span()}, [&](Status status) {
      EXPECT_FALSE(outcome.has_value());
      outcome = std::move(status);
    });
    EXPECT_FALSE(outcome.has_value()) << "Start must not complete";
    while (!outcome) (void)store_->Poll(ReapWait::kUntilOne);
    return *outcome;
  }
  Status Write(uint32_t chunk, uint64_t seed) {
    Memory memory(table_.entries[chunk].id.bytes, seed);
    return Now(IoDirection::kWrite, chunk, memory);
  }
  // Reads and compares with what a write of this seed left.
  void ExpectHolds(uint32_t chunk, uint64_t seed) {
    const uint64_t bytes = table_.entries[chunk].id.bytes;
    Memory memory(bytes, ~seed);
    const Status status = Now(IoDirection::kRead, chunk, memory);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(memory.Same(Memory(bytes, seed), bytes)) << "chunk " << chunk;
  }
  const ChunkHome& home(uint32_t chunk) const {
    return layout_.paths[0].homes[layout_.local_of_chunk[chunk]];
  }
  void ExpectNames(const Status& status, std::initializer_list<std::string> words) {
    for (const std::string& word : words) {
      EXPECT_NE(status.message().find(word), std::string::npos)
          << "'" << word << "' is missing in: " << status.message();
    }
  }

  // Writes and reads at random, several chunks in flight, with a commit now and then; every read is
  // compared with the last write started before it.
  void RandomTraffic(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::map<uint32_t, uint64_t> written;  // by chunk: seed of the last write
    std::vector<std::unique_ptr<Memory>> memories;
    for (uint64_t i = 0; i < 150; ++i) {
      const auto chunk = static_cast<uint32_t>(random() % table_.entries.size());
      const uint64_t bytes = table_.entries[chunk].id.bytes;
      const bool write = !written.contains(chunk) || random() % 2 == 0;
      memories.push_back(std::make_unique<Memory>(bytes, i + 1));
      Memory* memory = memories.back().get();
      if (write) written[chunk] = i + 1;
      const uint64_t expected = written[chunk];
      store_->Start({write ? IoDirection::kWrite : IoDirection::kRead, chunk, memory->span()},
                    [=](Status status) {
                      EXPECT_TRUE(status.ok()) << status.message();
                      EXPECT_TRUE(memory->Same(Memory(bytes, expected), bytes));
                    });
      if (random() % 4 == 0) (void)store_->Poll(ReapWait::kUntilOne);
      if (random() % 20 != 0) continue;
      while (store_->pending() > 0) (void)store_->Poll(ReapWait::kUntilOne);
      store_->MarkCommitted();
    }
    while (store_->pending() > 0) (void)store_->Poll(ReapWait::kUntilOne);
    for (const auto& [chunk, value] : written) ExpectHolds(chunk, value);
  }

  VirtualClock clock_;
  ChunkTable table_;
  StoreLayout layout_;
  std::unique_ptr<FaultyBlockDevice> device_;
  std::unique_ptr<TierStore> store_;
};

TEST_F(TierStoreTest, ReadsBackWhatWasWritten) {
  Make(SomeChunks(3), 1);
  for (uint32_t chunk = 0; chunk < 9; ++chunk) ASSERT_TRUE(Write(chunk, chunk).ok());
  for (uint32_t chunk = 9; chunk-- > 0;) ExpectHolds(chunk, chunk);
  ASSERT_TRUE(Write(4, 77).ok());
  ExpectHolds(4, 77);
  ExpectHolds(3, 3);
}

TEST_F(TierStoreTest, AChunkNeverWrittenIsAnError) {
  Make(SomeChunks(1), 1);
  Memory memory(table_.entries[1].id.bytes);
  const Status status = Now(IoDirection::kRead, 1, memory);
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  ExpectNames(status, {"/nvme/a", "moment1 of group 0, chunk 0", "never written"});
  ASSERT_TRUE(Write(1, 5).ok());  // the store goes on
  ExpectHolds(1, 5);
}

TEST_F(TierStoreTest, TransfersOfOneChunkRunInOrder) {
  // Latencies are random, so chunks finish in any order, but each chunk's own in the order given.
  FaultyDeviceOptions options;
  options.seed = 3;
  Make(SomeChunks(2), 1, options);
  std::vector<std::unique_ptr<Memory>> memories;
  std::map<uint32_t, std::vector<int>> order;
  for (int i = 0; i < 8; ++i) {
    for (uint32_t chunk = 0; chunk < 6; ++chunk) {
      const bool write = i % 2 == 0;
      memories.push_back(std::make_unique<Memory>(table_.entries[chunk].id.bytes, 100 * i + chunk));
      Memory* memory = memories.back().get();
      store_->Start({write ? IoDirection::kWrite : IoDirection::kRead, chunk, memory->span()},
                    [&, i, chunk, memory, write](Status status) {
                      EXPECT_TRUE(status.ok()) << status.message();
                      order[chunk].push_back(i);
                      const uint64_t bytes = table_.entries[chunk].id.bytes;
                      if (write) return;
                      EXPECT_TRUE(memory->Same(Memory(bytes, 100 * (i - 1) + chunk), bytes));
                    });
    }
  }
  EXPECT_EQ(store_->pending(), 48u);
  while (store_->pending() > 0) (void)store_->Poll(ReapWait::kUntilOne);
  for (const auto& [chunk, done] : order) {
    EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7})) << chunk;
  }
}

TEST_F(TierStoreTest, MoreThanTheDeviceTakesAtOnceWaits) {
  FaultyDeviceOptions options;
  options.device.queue_depth = 2;
  options.device.capacity = 3;
  Make(SomeChunks(10), 1, options);
  std::vector<std::unique_ptr<Memory>> memories;
  int done = 0;
  for (uint32_t chunk = 0; chunk < 30; ++chunk) {
    memories.push_back(std::make_unique<Memory>(table_.entries[chunk].id.bytes, chunk));
    store_->Start({IoDirection::kWrite, chunk, memories.back()->span()},
                  [&](Status status) { done += status.ok() ? 1 : 0; });
  }
  while (store_->pending() > 0) {
    (void)store_->Poll(ReapWait::kUntilOne);
    EXPECT_LE(device_->in_flight(), 3u);
  }
  EXPECT_EQ(done, 30);
  for (uint32_t chunk = 0; chunk < 30; ++chunk) ExpectHolds(chunk, chunk);
}

TEST_F(TierStoreTest, ACallbackMayStartTheNextTransfer) {
  Make(SomeChunks(1), 1);
  Memory memory(table_.entries[0].id.bytes, 1);
  int rounds = 0;
  std::function<void(Status)> next = [&](Status status) {
    ASSERT_TRUE(status.ok()) << status.message();
    if (++rounds < 20) {
      store_->Start({rounds % 2 == 1 ? IoDirection::kRead : IoDirection::kWrite, 0, memory.span()},
                    next);
    }
  };
  store_->Start({IoDirection::kWrite, 0, memory.span()}, next);
  while (store_->pending() > 0) (void)store_->Poll(ReapWait::kUntilOne);
  EXPECT_EQ(rounds, 20);
}

TEST_F(TierStoreTest, TwoSlotsKeepWhatIsCommitted) {
  Make(SomeChunks(1), 2);
  const uint32_t weight = 0, gradient = 2;
  ASSERT_EQ(home(weight).slot_count, 2u);
  ASSERT_EQ(home(gradient).slot_count, 1u);
  ASSERT_TRUE(Write(weight, 1).ok());
  ASSERT_TRUE(Write(weight, 2).ok());  // nothing is committed yet: in place
  ASSERT_TRUE(Write(gradient, 3).ok());
  EXPECT_EQ(store_->current_slot(weight), 0u);
  store_->MarkCommitted();
  const auto slot_bytes = [&](uint32_t slot) {
    const auto file = device_->contents(0).subspan(home(weight).slot_offset[slot],
                                                   table_.entries[weight].id.bytes);
    return std::vector<std::byte>(file.begin(), file.end());
  };
  const std::vector<std::byte> committed = slot_bytes(0);
  ASSERT_TRUE(Write(weight, 4).ok());
  EXPECT_EQ(store_->current_slot(weight), 1u);
  ASSERT_TRUE(Write(weight, 5).ok());  // the second in place
  ASSERT_TRUE(Write(gradient, 6).ok());
  EXPECT_EQ(store_->current_slot(weight), 1u);
  EXPECT_EQ(store_->current_slot(gradient), 0u);
  EXPECT_EQ(slot_bytes(0), committed) << "a write touched the committed slot";
  ExpectHolds(weight, 5);
  ExpectHolds(gradient, 6);
  store_->MarkCommitted();
  ASSERT_TRUE(Write(weight, 7).ok());
  EXPECT_EQ(store_->current_slot(weight), 0u);
  ExpectHolds(weight, 7);
}

TEST_F(TierStoreTest, AWriteThatWasNotDoneLeavesReadsOnTheCommittedSlot) {
  Make(SomeChunks(1), 2);
  ASSERT_TRUE(Write(0, 1).ok());
  store_->MarkCommitted();
  device_->FailRange(0, IoDirection::kWrite, home(0).slot_offset[1], kPageBytes, EIO,
                     FaultCount::kAlways);
  EXPECT_FALSE(Write(0, 2).ok());
  EXPECT_EQ(store_->current_slot(0), 0u);
}

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
