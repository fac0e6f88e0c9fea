#include "engine/checkpoint/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/engine/checkpoint/full_disk.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  const TempFolder folder;
  const std::string path = folder.Write("f", "old");
  {
    const auto file = AtomicFile::Create(path, 100).value().release();
    const std::unique_ptr<AtomicFile> owner(file);
    ASSERT_TRUE(file->Write(Bytes("new ")).ok());
    EXPECT_EQ(ReadWholeFile(path), "old");
    ASSERT_TRUE(file->Write(Bytes("content")).ok());
    ASSERT_TRUE(file->Commit().ok());
  }
  EXPECT_EQ(ReadWholeFile(path), "new content");  // and not the 100 bytes reserved
  {
    const auto dropped = AtomicFile::Create(path, 0).value().release();
    const std::unique_ptr<AtomicFile> owner(dropped);
    ASSERT_TRUE(dropped->Write(Bytes("half")).ok());
  }
  EXPECT_EQ(ReadWholeFile(path), "new content");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(AtomicFile, ALeftoverIsTakenOverAndALivingWriterIsNot) {
  const TempFolder folder;
  const std::string path = folder.path() + "/f";
  folder.Write("f.partial", "left by a process that died, and longer");
  {
    const auto first = AtomicFile::Create(path, 0).value().release();
    const std::unique_ptr<AtomicFile> owner(first);
    const auto second = AtomicFile::Create(path, 0);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), ErrorCode::kBusy);
    ASSERT_TRUE(first->Write(Bytes("x")).ok());  // the second did no harm
    ASSERT_TRUE(first->Commit().ok());
  }
  EXPECT_EQ(ReadWholeFile(path), "x");
}

TEST(AtomicFile, ErrorsNameThePath) {
  const TempFolder folder;
  const auto none = AtomicFile::Create(folder.path() + "/no/f", 0);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().error_number(), ENOENT);
  EXPECT_NE(none.status().message().find("/no/f"), std::string::npos);
  std::filesystem::create_directory(folder.path() + "/d");
  folder.Write("d/inside", "x");
  EXPECT_FALSE(
      WriteFileAtomically(folder.path() + "/d", Bytes("x")).ok());  // a folder stands there
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/d.partial"));
  // A link at the temporary's name must not lead the write elsewhere.
  const std::string victim = folder.Write("victim", "safe");
  std::filesystem::create_symlink(victim, folder.path() + "/g.partial");
  EXPECT_FALSE(WriteFileAtomically(folder.path() + "/g", Bytes("x")).ok());
  EXPECT_EQ(ReadWholeFile(victim), "safe");
}

// What a full disk must leave: an error with its errno, the old file, no temporary.
int CheckRefusal(const Status& status, int error, const std::string& path) {
  if (status.ok()) return 1;
  if (status.error_number() != error) return 2;
  if (status.message().find(path) == std::string::npos) return 3;
  if (ReadWholeFile(path) != "old") return 4;
  if (std::filesystem::exists(path + ".partial")) return 5;
  return 0;
}

// Without a reservation the write itself meets the limit; with one, nothing is written.
Status WriteMegabytes(const std::string& path, uint64_t reserve_bytes) {
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                         AtomicFile::Create(path, reserve_bytes));
  const std::vector<std::byte> piece(300'000, std::byte{1});
  for (int i = 0; i < 10; ++i) MAREA_RETURN_IF_ERROR(file->Write(piece));
  return file->Commit();
}

TEST(AtomicFile, FileSizeLimit) {
  const TempFolder folder;
  const std::string path = folder.Write("f", "old");
  for (const uint64_t reserve_bytes : {0, 3'000'000}) {
    EXPECT_EQ(UnderFileSizeLimit(
                  1'000'000,
                  [&] { return CheckRefusal(WriteMegabytes(path, reserve_bytes), EFBIG, path); }),
              0)
        << reserve_bytes;
  }
}

TEST(AtomicFile, FullDisk) {
  const TempFolder folder;
  for (const uint64_t reserve_bytes : {0, 3'000'000}) {
    const int result = OnSmallFileSystem(folder.path(), 1'000'000, [&] {
      const std::string path = folder.Write("f", "old");
      return CheckRefusal(WriteMegabytes(path, reserve_bytes), ENOSPC, path);
    });
    if (result == kCannotMount) GTEST_SKIP() << "mounting a small file system is not allowed here";
    EXPECT_EQ(result, 0) << reserve_bytes;
  }
}

}  // namespace
}  // namespace marea
