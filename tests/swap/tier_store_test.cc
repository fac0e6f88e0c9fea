// The tier store on a simulated drive that works: order, slots, queueing.
#include "swap/tier_store.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/swap/tier_store_fixture.h"

namespace marea {
namespace {

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

}  // namespace
}  // namespace marea
