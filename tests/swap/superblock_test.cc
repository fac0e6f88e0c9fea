// The superblock: what it says of itself, and every way in which a file can be the wrong one.
#include "swap/superblock.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "io/units.h"
#include "swap/store_layout.h"

namespace marea {
namespace {

RunUuid Uuid(uint8_t seed) {
  RunUuid uuid;
  for (size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<uint8_t>(seed * 16 + i);
  return uuid;
}

StoreGeometry Geometry() {
  return {.slots = 2,
          .path_index = 1,
          .path_count = 3,
          .chunk_count = 7,
          .file_bytes = 1 << 20,
          .layout_hash = 0x1234};
}

class SuperblockTest : public ::testing::Test {
 protected:
  // Writes the superblock of `epoch` where that epoch belongs.
  void Write(uint64_t epoch) {
    Superblock superblock = MakeSuperblock(Uuid(1), Geometry());
    Seal(superblock, epoch);
    std::memcpy(Copy(epoch % 2), &superblock, sizeof superblock);
  }
  std::byte* Copy(size_t index) { return pages_.data() + index * kPageBytes; }
  // A torn page: its first sectors are new, the rest is what was there before.
  void Tear(size_t index, const std::vector<std::byte>& before, size_t sectors) {
    const size_t kept = sectors * 512;
    std::memcpy(Copy(index) + kept, before.data() + index * kPageBytes + kept, kPageBytes - kept);
  }
  Result<Superblock> Read() {
    return ReadSuperblock(std::span<const std::byte, 2 * kPageBytes>(pages_), "/nvme/a");
  }
  void ExpectRefused(const char* word) {
    const Result<Superblock> read = Read();
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.status().code(), ErrorCode::kCorrupt);
    EXPECT_NE(read.status().message().find(word), std::string::npos) << read.status().message();
    EXPECT_NE(read.status().message().find("/nvme/a"), std::string::npos);
  }

  std::vector<std::byte> pages_ = std::vector<std::byte>(2 * kPageBytes);
};

TEST_F(SuperblockTest, ReadsBackWhatWasWritten) {
  Write(0);
  const Result<Superblock> read = Read();
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().epoch, 0u);
  EXPECT_EQ(GeometryOf(read.value()), Geometry());
  EXPECT_EQ(read.value().run_uuid, Uuid(1));
}

TEST_F(SuperblockTest, TheNewestValidCopyCounts) {
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    Write(epoch);
    EXPECT_EQ(Read().value().epoch, epoch);
  }
}

TEST_F(SuperblockTest, ATornCopyLeavesTheEpochBefore) {
  Write(0);
  Write(1);
  const std::vector<std::byte> before = pages_;
  for (size_t sectors = 1; sectors < 8; ++sectors) {
    pages_ = before;
    Write(2);
    Tear(0, before, sectors);
    EXPECT_EQ(Judge(std::span<const std::byte, kPageBytes>(Copy(0), kPageBytes)),
              SuperblockVerdict::kHalfWritten)
        << sectors;
    ASSERT_TRUE(Read().ok()) << sectors;
    EXPECT_EQ(Read().value().epoch, 1u) << sectors;
  }
}

TEST_F(SuperblockTest, AnyFlippedBitIsSeen) {
  Write(0);
  for (size_t byte = 0; byte < kPageBytes; byte += 7) {
    const std::byte flipped = std::byte{1} << (byte % 8);
    pages_[byte] ^= flipped;
    EXPECT_FALSE(Read().ok()) << byte;
    pages_[byte] ^= flipped;
  }
  EXPECT_TRUE(Read().ok());
}

TEST_F(SuperblockTest, HalfWrittenIsSaid) {
  ExpectRefused("half-written");  // never written at all
  const std::vector<std::byte> before = pages_;
  Write(0);
  Tear(0, before, 3);
  ExpectRefused("half-written");
}

TEST_F(SuperblockTest, ForeignIsSaid) {
  std::memset(pages_.data(), 'x', pages_.size());
  ExpectRefused("foreign");
}

TEST_F(SuperblockTest, OtherVersionIsSaidWithBothNumbers) {
  Superblock superblock = MakeSuperblock(Uuid(1), Geometry());
  superblock.version = 9;
  Seal(superblock, 0);
  std::memcpy(Copy(0), &superblock, sizeof superblock);
  ExpectRefused("of another version: format 9, this program reads 1");
  // A later format may keep its checksum elsewhere.
  superblock.checksum ^= 1;
  std::memcpy(Copy(0), &superblock, sizeof superblock);
  ExpectRefused("of another version");
}

TEST_F(SuperblockTest, OtherRunAndOtherGeometryAreSaid) {
  Write(0);
  const Superblock found = Read().value();
  EXPECT_TRUE(CheckSuperblock(found, Uuid(1), Geometry(), "/nvme/a").ok());

  const Status other_run = CheckSuperblock(found, Uuid(2), Geometry(), "/nvme/a");
  EXPECT_NE(other_run.message().find("foreign"), std::string::npos);
  EXPECT_NE(other_run.message().find(FormatUuid(Uuid(1))), std::string::npos);

  const auto expect_refused = [&](auto change, const char* what) {
    StoreGeometry wanted = Geometry();
    change(wanted);
    const Status status = CheckSuperblock(found, Uuid(1), wanted, "/nvme/a");
    ASSERT_FALSE(status.ok()) << what;
    EXPECT_NE(status.message().find("of other geometry"), std::string::npos);
    EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
  };
  expect_refused([](StoreGeometry& g) { g.slots = 1; }, "slots");
  expect_refused([](StoreGeometry& g) { g.page_bytes = 512; }, "page size");
  expect_refused([](StoreGeometry& g) { g.path_index = 0; }, "position of the path");
  expect_refused([](StoreGeometry& g) { g.path_count = 1; }, "number of paths");
  expect_refused([](StoreGeometry& g) { g.chunk_count = 8; }, "number of chunks");
  expect_refused([](StoreGeometry& g) { g.file_bytes = 1; }, "size");
  expect_refused([](StoreGeometry& g) { g.layout_hash = 1; }, "layout");
}

// The worked example of docs/file-format.md, number by number.
TEST(FileFormatTest, TheWorkedExampleHolds) {
  ChunkTable table;
  const auto add = [&](ShardKind kind, uint32_t chunk, uint64_t first_byte, uint64_t bytes) {
    table.entries.push_back(
        {.id = {.kind = kind, .chunk = chunk, .first_byte = first_byte, .bytes = bytes},
         .updated = true});
  };
  add(ShardKind::kWeight, 0, 0, 8192);
  add(ShardKind::kMoment1, 0, 0, 16384);
  add(ShardKind::kGradient, 0, 0, 8192);
  add(ShardKind::kWeight, 1, 8192, 3808);
  add(ShardKind::kMoment1, 1, 16384, 7616);
  add(ShardKind::kGradient, 1, 8192, 3808);
  const StorePath path{.path = "/nvme", .bytes_max = kGiB};
  const PathLayout layout = LayOutStore(table, std::span(&path, 1), 2).value().paths[0];
  const uint64_t slots[][2] = {{8192, 57344},  {16384, 65536}, {32768, 0},
                               {40960, 81920}, {45056, 86016}, {53248, 0}};
  for (size_t i = 0; i < layout.homes.size(); ++i) {
    EXPECT_EQ(layout.homes[i].slot_offset[0], slots[i][0]) << i;
    EXPECT_EQ(layout.homes[i].slot_offset[1], slots[i][1]) << i;
    EXPECT_EQ(layout.homes[i].slot_count, slots[i][1] == 0 ? 1u : 2u) << i;
  }
  EXPECT_EQ(layout.file_bytes, 94208u);
  RunUuid uuid;
  for (size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<uint8_t>(i * 0x11);
  EXPECT_EQ(FormatUuid(uuid), "00112233-4455-6677-8899-aabbccddeeff");
  Superblock superblock = MakeSuperblock(uuid, {.slots = 2,
                                                .chunk_count = layout.homes.size(),
                                                .file_bytes = layout.file_bytes,
                                                .layout_hash = LayoutHash(layout, table)});
  Seal(superblock, 0);
  const uint8_t begin[80] = {0x4d, 0x41, 0x52, 0x45, 0x41, 0x53, 0x42, 0x0a, 0x01, 0x00, 0x00, 0x00,
                             0x00, 0x10, 0x00, 0x00, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                             0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x02, 0x00, 0x00, 0x00,
                             0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                             0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x70, 0x01, 0x00,
                             0x00, 0x00, 0x00, 0x00, 0x59, 0xe7, 0x4b, 0xd1, 0xf8, 0x3d, 0x39, 0x6c,
                             0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(std::memcmp(&superblock, begin, sizeof begin), 0);
  EXPECT_EQ(superblock.checksum, 0x51dca2bcd4a58414u);
}

TEST(RunUuidTest, IsRandomAndWritten8_4_4_4_12) {
  const RunUuid a = MakeRunUuid().value();
  const RunUuid b = MakeRunUuid().value();
  EXPECT_NE(a, b);
  const std::string text = FormatUuid(a);
  EXPECT_EQ(text.size(), 36u);
  EXPECT_EQ(text[8], '-');
  EXPECT_EQ(text[14], '4');  // version
}

}  // namespace
}  // namespace marea
