#include "engine/data/dataset.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

std::string Bin(const std::vector<uint16_t>& tokens) {
  return std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
}

std::string ErrorOf(const std::string& path, uint32_t length, uint32_t vocabulary) {
  const auto dataset = Dataset::Open({path, length, vocabulary});
  if (dataset.ok()) return "accepted";
  EXPECT_EQ(dataset.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(dataset.status().message().find(path), std::string::npos) << dataset.status().message();
  return dataset.status().message();
}

#define EXPECT_HAS(message, text)                                        \
  do {                                                                   \
    const std::string has_message = (message);                           \
    EXPECT_NE(has_message.find(text), std::string::npos) << has_message; \
  } while (false)

TEST(Dataset, SamplesAreShiftedByOne) {
  const TempFolder folder;
  const std::string text = folder.Write("text.txt", "abcdefghijk");  // 11 bytes
  const std::unique_ptr<Dataset> data = Dataset::Open({text, 3, 256}).value();
  EXPECT_EQ(data->samples(), 3u);
  std::vector<int32_t> tokens(3), labels(3);
  std::vector<float> weights(3, 0);
  data->ReadSample(2, tokens.data(), labels.data(), weights.data());
  EXPECT_EQ(tokens, (std::vector<int32_t>{'g', 'h', 'i'}));
  EXPECT_EQ(labels, (std::vector<int32_t>{'h', 'i', 'j'}));
  EXPECT_EQ(weights, (std::vector<float>{1, 1, 1}));
}

TEST(Dataset, BinTokens) {
  const TempFolder folder;
  const std::string path = folder.Write("toy.bin", Bin({0, 1, 256, 65535, 7}));
  const std::unique_ptr<Dataset> data = Dataset::Open({path, 2, 65536}).value();
  EXPECT_EQ(data->samples(), 2u);
  std::vector<int32_t> tokens(2), labels(2);
  std::vector<float> weights(2);
  data->ReadSample(1, tokens.data(), labels.data(), weights.data());
  EXPECT_EQ(tokens, (std::vector<int32_t>{256, 65535}));
  EXPECT_EQ(labels, (std::vector<int32_t>{65535, 7}));
  EXPECT_HAS(ErrorOf(folder.Write("odd.bin", "abc"), 1, 65536), "3 bytes");
}

TEST(Dataset, TooLittleDataNamesBytesAvailableAndNeeded) {
  const TempFolder folder;
  EXPECT_HAS(ErrorOf(folder.Write("short.txt", "abcd"), 4, 256), "has 4 bytes");
  EXPECT_HAS(ErrorOf(folder.Write("short.txt", "abcd"), 4, 256), "needs 5");
  EXPECT_EQ(ErrorOf(folder.Write("enough.txt", "abcde"), 4, 256), "accepted");
  EXPECT_HAS(ErrorOf(folder.Write("short.bin", Bin({1, 2, 3})), 3, 256), "has 6 bytes");
  EXPECT_HAS(ErrorOf(folder.Write("short.bin", Bin({1, 2, 3})), 3, 256), "needs 8");
  EXPECT_HAS(ErrorOf(folder.Write("empty.txt", ""), 4, 256), "is empty");
  EXPECT_HAS(ErrorOf(folder.Write("empty.bin", ""), 4, 256), "is empty");
  EXPECT_HAS(ErrorOf(folder.path() + "/none", 4, 256), "No such file");
}

TEST(Dataset, TokenBeyondTheVocabularyIsRefusedWithItsSample) {
  const TempFolder folder;
  std::vector<uint16_t> tokens(63 * 128 + 1, 3);
  tokens[5 * 128 + 17] = 257;
  const std::string path = folder.Write("toy.bin", Bin(tokens));
  EXPECT_HAS(ErrorOf(path, 128, 257), "sample 5 has token id 257");
  EXPECT_HAS(ErrorOf(path, 128, 257), "257 ids");
  EXPECT_EQ(ErrorOf(path, 128, 258), "accepted");
  // Only a label: it belongs to the sample before.
  tokens[5 * 128 + 17] = 3;
  tokens[63 * 128] = 300;
  EXPECT_HAS(ErrorOf(folder.Write("label.bin", Bin(tokens)), 128, 257),
             "sample 62 has token id 300");
  // Beyond the last sample: never read, so no error.
  tokens[63 * 128] = 3;
  tokens.push_back(300);
  EXPECT_EQ(ErrorOf(folder.Write("tail.bin", Bin(tokens)), 128, 257), "accepted");
  EXPECT_HAS(ErrorOf(folder.Write("ascii.txt", "abc\xC3\xA9"), 2, 128), "token id 195");
}

TEST(Dataset, TextMustBeUtf8) {
  const TempFolder folder;
  EXPECT_HAS(ErrorOf(folder.Write("a.txt", "ab\xFFxx"), 2, 256), "at byte 2");
  EXPECT_HAS(ErrorOf(folder.Write("b.txt", "abcd\xE2\x82"), 2, 256), "not UTF-8");
  EXPECT_EQ(ErrorOf(folder.Write("c.txt", "ab\xC3\xA9"), 2, 256), "accepted");
}

TEST(Dataset, FolderJoinsTextFilesInTheOrderOfTheirPaths) {
  const TempFolder folder;
  folder.Write("b.py", "BB");
  folder.Write("a/z.py", "zz");
  folder.Write("a/empty.py", "");
  folder.Write("c.pyc", "\xFF\xFE");
  folder.Write("d.dat", std::string("x\0y", 3));
  folder.Write(".git/config", "hidden");
  folder.Write(".hidden", "hidden");
  std::filesystem::create_symlink(folder.path() + "/b.py", folder.path() + "/e.py");
  std::filesystem::create_symlink(folder.path() + "/nowhere", folder.path() + "/f.py");
  std::filesystem::create_directory_symlink(folder.path(), folder.path() + "/loop");
  const std::unique_ptr<Dataset> data = Dataset::Open({folder.path(), 5, 256}).value();
  EXPECT_EQ(data->source().tokens(), 6u);
  std::vector<int32_t> tokens(6);
  data->source().Read(0, 6, tokens.data());
  EXPECT_EQ(std::string(tokens.begin(), tokens.end()), "zzBBBB");
  EXPECT_HAS(data->source().notice(), "left out 2 of ");
  EXPECT_HAS(data->source().notice(), "c.pyc");
  const TempFolder empty;
  empty.Write("x.bin", "\xFF\xFF");
  EXPECT_HAS(ErrorOf(empty.path(), 4, 256), "holds no text");
}

TEST(Dataset, ReadsAcrossFilesLikeOneText) {
  const TempFolder folder;
  std::mt19937 random(1);
  std::string joined;
  for (int file = 0; file < 40; ++file) {
    std::string text;
    const size_t bytes = random() % 9000;
    for (size_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + random() % 26);
    folder.Write(fmt::format("f{}", 100 + file), text);
    joined += text;
  }
  const std::unique_ptr<TokenSource> source = TokenSource::Open(folder.path()).value();
  ASSERT_EQ(source->tokens(), joined.size());
  for (int i = 0; i < 500; ++i) {
    const uint64_t first = random() % joined.size();
    const uint64_t count = random() % (joined.size() - first + 1);
    std::vector<int32_t> tokens(count);
    source->Read(first, count, tokens.data());
    ASSERT_EQ(std::string(tokens.begin(), tokens.end()), joined.substr(first, count));
  }
  EXPECT_EQ(source->FindAtLeast('z' + 1, joined.size()), joined.size());
  EXPECT_EQ(source->FindAtLeast('z', joined.size()), joined.find('z'));
}

TEST(Dataset, ReadingDoesNotGrowTheProcess) {
  const TempFolder folder;
  const uint64_t bytes = uint64_t{64} << 20;
  const std::string path = folder.Write("large.txt", std::string(bytes, 'a'));
  const auto resident_bytes = [] {
    std::ifstream statm("/proc/self/statm");
    uint64_t size = 0, resident = 0;
    statm >> size >> resident;
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  };
  const uint64_t before = resident_bytes();
  const std::unique_ptr<Dataset> data = Dataset::Open({path, 65536, 256}).value();
  std::vector<int32_t> tokens(65536), labels(65536);
  std::vector<float> weights(65536);
  for (uint64_t sample = 0; sample < data->samples(); ++sample) {
    data->ReadSample(sample, tokens.data(), labels.data(), weights.data());
  }
  EXPECT_LT(resident_bytes(), before + (uint64_t{8} << 20));
}

TEST(Dataset, OtherKindsOfFilesDoNotHang) {
  const TempFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_HAS(ErrorOf(pipe, 4, 256), "neither a file nor a folder");
}

}  // namespace
}  // namespace marea
