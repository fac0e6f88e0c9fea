// The superblock: what it says of itself, and every way in which a file can be the wrong one.
#include "swap/superblock.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

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
