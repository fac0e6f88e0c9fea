// What the tier store's tests share: a store over a simulated drive, and memory to move.
#pragma once

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
#include "swap/store_layout.h"
#include "swap/tier_store.h"
#include "tests/fakes/faulty_block_device.h"
#include "tests/fakes/virtual_clock.h"

namespace marea {
inline ChunkEntry Entry(uint32_t group, ShardKind kind, uint32_t chunk, uint64_t bytes,
                        bool updated = true) {
  return {.id = {.kind = kind,
                 .group = group,
                 .chunk = chunk,
                 .first_byte = chunk * uint64_t{1} << 20,
                 .bytes = bytes},
          .updated = updated};
}

// Chunks of odd lengths, so that pages are not full.
inline ChunkTable SomeChunks(uint32_t groups) {
  ChunkTable table;
  for (uint32_t group = 0; group < groups; ++group) {
    table.entries.push_back(Entry(group, ShardKind::kWeight, 0, 10000 + group));
    table.entries.push_back(Entry(group, ShardKind::kMoment1, 0, 20000));
    table.entries.push_back(Entry(group, ShardKind::kGradient, 0, 4096));
  }
  return table;
}

struct TestPageDeleter {
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
  std::unique_ptr<std::byte[], TestPageDeleter> data_;
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

}  // namespace marea
