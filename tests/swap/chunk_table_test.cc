// From a plan to a table of chunks, and from the table to places on drives.
#include "swap/chunk_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "swap/store_layout.h"

namespace marea {
namespace {

// One group with homes on NVMe: the moment is updated, the weight only read.
StepPlan TwoShardPlan() {
  StepPlan plan;
  plan.buffers = {
      {.space = Space::kFile, .bytes = 12000, .offset = 0, .content = {ShardKind::kWeight, 5}},
      {.space = Space::kFile, .bytes = 24000, .offset = 12288, .content = {ShardKind::kMoment1, 5}},
      {.space = Space::kRam,
       .bytes = 8192,
       .offset = 0,
       .ring = 0,
       .content = {ShardKind::kWeight, 5, 0, 0, 0}},
  };
  const auto op = [&](OpKind kind, uint32_t home, uint64_t offset, uint64_t bytes, uint32_t chunk) {
    const Access file{home, offset, bytes,
                      kind == OpKind::kRead ? AccessMode::kRead : AccessMode::kWrite};
    const Access ram{2, 0, bytes, kind == OpKind::kRead ? AccessMode::kWrite : AccessMode::kRead};
    Op made{.kind = kind, .lane = Lane::kNvmeRead, .group = 5, .chunk = chunk};
    made.accesses = kind == OpKind::kRead ? std::vector{file, ram} : std::vector{ram, file};
    plan.ops.push_back(made);
  };
  op(OpKind::kRead, 1, 8000, 8000, 1);
  op(OpKind::kRead, 0, 0, 4000, 0);
  op(OpKind::kRead, 0, 4000, 4000, 1);
  op(OpKind::kRead, 1, 0, 8000, 0);
  op(OpKind::kWrite, 1, 0, 8000, 0);
  op(OpKind::kRead, 0, 0, 4000, 0);  // a second fetch of the same chunk
  return plan;
}

TEST(ChunkTableTest, OneEntryAChunkSideBySideByChunk) {
  const ChunkTable table = MakeChunkTable(TwoShardPlan());
  ASSERT_EQ(table.entries.size(), 4u);
  const auto expect = [&](uint32_t i, ShardKind kind, uint32_t chunk, uint64_t first,
                          bool updated) {
    EXPECT_EQ(table.entries[i].id.kind, kind) << i;
    EXPECT_EQ(table.entries[i].id.chunk, chunk) << i;
    EXPECT_EQ(table.entries[i].id.first_byte, first) << i;
    EXPECT_EQ(table.entries[i].updated, updated) << i;
    EXPECT_EQ(table.Find(kind, 5, 0, first), i);
  };
  expect(0, ShardKind::kWeight, 0, 0, false);
  expect(1, ShardKind::kMoment1, 0, 0, true);
  expect(2, ShardKind::kWeight, 1, 4000, false);
  expect(3, ShardKind::kMoment1, 1, 8000, false);
  EXPECT_EQ(table.chunk_bytes_max(), 8000u);
  EXPECT_FALSE(table.Find(ShardKind::kWeight, 5, 0, 4001).has_value());
  EXPECT_FALSE(table.Find(ShardKind::kWeight, 6, 0, 0).has_value());
  EXPECT_EQ(Describe(table.entries[2].id), "weight of group 5, chunk 1 (bytes 4000..7999)");
}

TEST(ChunkTableDeathTest, TwoSizesOfOneChunkStopTheProcess) {
  StepPlan plan = TwoShardPlan();
  plan.ops[5].accesses[0].bytes = 3000;
  EXPECT_DEATH((void)MakeChunkTable(plan), "different chunks");
}

ChunkTable RandomTable(uint64_t seed) {
  std::mt19937_64 random(seed);
  ChunkTable table;
  const auto count = 1 + random() % 40;
  for (uint32_t i = 0; i < count; ++i) {
    const auto kind = static_cast<ShardKind>(random() % 6);
    table.entries.push_back({.id = {.kind = kind, .group = i, .bytes = 1 + random() % 50000},
                             .updated = random() % 3 > 0});
  }
  return table;
}

// Slots are aligned, inside the file, behind the superblocks, and overlap nothing.
void CheckLayout(const StoreLayout& layout, const ChunkTable& table,
                 const std::vector<StorePath>& paths) {
  size_t placed = 0;
  uint64_t file_bytes = 0;
  for (size_t p = 0; p < layout.paths.size(); ++p) {
    const PathLayout& path = layout.paths[p];
    EXPECT_LE(path.file_bytes, paths[p].bytes_max);
    file_bytes += path.file_bytes;
    std::vector<std::pair<uint64_t, uint64_t>> slots;
    for (uint32_t local = 0; local < path.homes.size(); ++local) {
      const ChunkHome& home = path.homes[local];
      EXPECT_EQ(layout.path_of_chunk[home.chunk], p);
      EXPECT_EQ(layout.local_of_chunk[home.chunk], local);
      EXPECT_EQ(home.bytes, table.entries[home.chunk].id.bytes);
      EXPECT_EQ(home.slot_count, ChunkSlotCount(table.entries[home.chunk], layout.slots));
      for (uint32_t slot = 0; slot < home.slot_count; ++slot) {
        EXPECT_EQ(home.slot_offset[slot] % kPageBytes, 0u);
        slots.emplace_back(home.slot_offset[slot], home.slot_offset[slot] + home.bytes);
      }
      ++placed;
    }
    std::sort(slots.begin(), slots.end());
    uint64_t end = kStoreDataOffset;
    for (const auto& [slot_begin, slot_end] : slots) {
      EXPECT_GE(slot_begin, end);
      end = slot_end;
    }
    EXPECT_LE(end, path.file_bytes);
  }
  EXPECT_EQ(placed, table.entries.size());
  EXPECT_EQ(file_bytes,
            StoreFileBytes(table, layout.slots, static_cast<uint32_t>(layout.paths.size())));
}

TEST(StoreLayoutTest, RandomTablesAreLaidOutWithoutOverlap) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const ChunkTable table = RandomTable(seed);
    std::vector<StorePath> paths;
    for (uint64_t p = 0; p <= seed % 3; ++p) {
      paths.push_back({.path = "/nvme/" + std::to_string(p), .bytes_max = kGiB, .weight = 1.0 + p});
    }
    const uint32_t slots = 1 + static_cast<uint32_t>(seed % 2);
    const Result<StoreLayout> layout = LayOutStore(table, paths, slots);
    ASSERT_TRUE(layout.ok()) << layout.status().message();
    CheckLayout(layout.value(), table, paths);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(StoreLayoutTest, PathsShareInProportionToTheirWeights) {
  ChunkTable table;
  for (uint32_t i = 0; i < 400; ++i) {
    table.entries.push_back({.id = {.group = i, .bytes = 64 * kKiB}, .updated = true});
  }
  const std::vector<StorePath> paths = {{"/a", kGiB, 1.0}, {"/b", kGiB, 3.0}};
  const StoreLayout layout = LayOutStore(table, paths, 1).value();
  EXPECT_NEAR(static_cast<double>(layout.paths[0].homes.size()), 100, 2);
  EXPECT_NEAR(static_cast<double>(layout.paths[1].homes.size()), 300, 2);
}

TEST(StoreLayoutTest, AFullPathLeavesTheRestToTheOthers) {
  ChunkTable table;
  for (uint32_t i = 0; i < 10; ++i) {
    table.entries.push_back({.id = {.group = i, .bytes = kPageBytes}, .updated = true});
  }
  const std::vector<StorePath> paths = {{"/a", kStoreDataOffset + 2 * kPageBytes, 1.0},
                                        {"/b", kStoreDataOffset + 8 * kPageBytes, 1.0}};
  const StoreLayout layout = LayOutStore(table, paths, 1).value();
  EXPECT_EQ(layout.paths[0].homes.size(), 2u);
  EXPECT_EQ(layout.paths[1].homes.size(), 8u);
}

TEST(StoreLayoutTest, AFastButSmallPathNeverExceedsItsSize) {
  ChunkTable table;
  for (uint32_t i = 0; i < 100; ++i) {
    table.entries.push_back({.id = {.group = i, .bytes = kPageBytes}, .updated = true});
  }
  const std::vector<StorePath> paths = {{"/fast", kStoreDataOffset + 10 * kPageBytes, 7e9},
                                        {"/slow", kGiB, 1e9}};
  const StoreLayout layout = LayOutStore(table, paths, 1).value();
  CheckLayout(layout, table, paths);
  EXPECT_EQ(layout.paths[0].homes.size(), 10u);
  EXPECT_EQ(layout.paths[1].homes.size(), 90u);
}

TEST(StoreLayoutTest, WhatFitsInEqualSharesFitsWithAnyWeights) {
  // Weights put both small chunks on /a, which then has no room for the large one.
  ChunkTable table;
  for (const uint64_t pages : {2, 2, 3}) {
    table.entries.push_back({.id = {.group = 0, .bytes = pages * kPageBytes}, .updated = true});
  }
  std::vector<StorePath> paths = {{"/a", kStoreDataOffset + 5 * kPageBytes, 1.0},
                                  {"/b", kStoreDataOffset + 2 * kPageBytes, 1.0}};
  const StoreLayout equal = LayOutStore(table, paths, 1).value();
  paths[0].weight = 9;
  const Result<StoreLayout> weighted = LayOutStore(table, paths, 1);
  ASSERT_TRUE(weighted.ok()) << weighted.status().message();
  EXPECT_EQ(weighted.value().path_of_chunk, equal.path_of_chunk);
}

TEST(StoreLayoutTest, OnePathIsLaidOutAlikeWithAnyWeight) {
  const ChunkTable table = RandomTable(5);
  std::vector<StorePath> path = {{"/a", kGiB, 1.0}};
  const uint64_t hash = LayoutHash(LayOutStore(table, path, 2).value().paths[0], table);
  path[0].weight = 3.3e9;
  EXPECT_EQ(LayoutHash(LayOutStore(table, path, 2).value().paths[0], table), hash);
}

TEST(StoreLayoutTest, EveryKindIsSharedAsTheWholeIs) {
  // The sizes of bf16 training: dealt as one, weights would all be on /a and low halves on /b.
  ChunkTable table;
  for (uint32_t i = 0; i < 100; ++i) {
    for (const auto& [kind, pages] : {std::pair{ShardKind::kWeight, 2u},
                                      {ShardKind::kMasterLow, 2u},
                                      {ShardKind::kMoment1, 4u},
                                      {ShardKind::kMoment2, 4u}}) {
      table.entries.push_back(
          {.id = {.kind = kind, .group = i, .bytes = pages * kPageBytes}, .updated = true});
    }
  }
  for (const double weight : {1.0, 3.0}) {
    const std::vector<StorePath> paths = {{"/a", kGiB, 1.0}, {"/b", kGiB, weight}};
    const StoreLayout layout = LayOutStore(table, paths, 2).value();
    std::array<double, kShardKindCount> on_a{};
    for (const ChunkHome& home : layout.paths[0].homes) {
      on_a[static_cast<size_t>(table.entries[home.chunk].id.kind)] += 1;
    }
    for (const ShardKind kind :
         {ShardKind::kWeight, ShardKind::kMasterLow, ShardKind::kMoment1, ShardKind::kMoment2}) {
      EXPECT_NEAR(on_a[static_cast<size_t>(kind)], 100 / (1 + weight), 1) << ShardKindName(kind);
    }
  }
}

TEST(StoreLayoutTest, EveryStretchOfTheTableIsSharedAsTheWholeIs) {
  ChunkTable table;
  for (uint32_t i = 0; i < 400; ++i) {
    table.entries.push_back({.id = {.group = i, .bytes = 64 * kKiB}, .updated = true});
  }
  const std::vector<StorePath> paths = {{"/a", kGiB, 1.2e9}, {"/b", kGiB, 2.8e9}};
  const StoreLayout layout = LayOutStore(table, paths, 1).value();
  for (uint32_t first = 0; first < 400; first += 40) {
    const auto begin = layout.path_of_chunk.begin() + first;
    EXPECT_NEAR(static_cast<double>(std::count(begin, begin + 40, 0u)), 12, 1) << first;
  }
}

TEST(StoreLayoutTest, TooSmallIsDoesNotFitWithNumbers) {
  ChunkTable table;
  table.entries.push_back({.id = {.group = 0, .bytes = kMiB}, .updated = true});
  const std::vector<StorePath> paths = {{"/a", kMiB, 1.0}};
  for (const uint32_t slots : {1u, 2u}) {
    const Result<StoreLayout> layout = LayOutStore(table, paths, slots);
    ASSERT_FALSE(layout.ok());
    EXPECT_EQ(layout.status().code(), ErrorCode::kDoesNotFit);
    EXPECT_NE(layout.status().message().find("--nvme"), std::string::npos);
    EXPECT_EQ(layout.status().message().find("--slots 1") != std::string::npos, slots == 2);
  }
  EXPECT_EQ(LayOutStore(table, {}, 1).status().code(), ErrorCode::kDoesNotFit);
}

TEST(StoreLayoutTest, TheHashSeesEveryPlace) {
  const ChunkTable table = RandomTable(1);
  const std::vector<StorePath> paths = {{"/a", kGiB, 1.0}};
  const PathLayout one = LayOutStore(table, paths, 1).value().paths[0];
  EXPECT_EQ(LayoutHash(one, table),
            LayoutHash(LayOutStore(table, paths, 1).value().paths[0], table));
  EXPECT_NE(LayoutHash(one, table),
            LayoutHash(LayOutStore(table, paths, 2).value().paths[0], table));
  PathLayout moved = one;
  moved.homes[0].slot_offset[0] += kPageBytes;
  EXPECT_NE(LayoutHash(one, table), LayoutHash(moved, table));
}

}  // namespace
}  // namespace marea
