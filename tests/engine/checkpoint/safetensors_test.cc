#include "engine/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/checkpoint/float_convert.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "tests/engine/checkpoint/safetensors_text.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

struct BadFile {
  std::string header;
  std::string data;
  std::string needed;  // in the message
};

TEST(SafetensorsFile, HostileHeadersAreOneSentenceEach) {
  const std::string eight(8, 'x');
  const BadFile cases[] = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234567", "truncated"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight + "x", "after its last"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       eight, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight, "belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight, "backwards"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight, "do not need"},
      {R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", eight, "F99"},
      {R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", eight, "dtype"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", eight, "dtype"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", eight, "shape"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", eight, "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight, "shape"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", eight, "shape"},
      {R"({"a":{"dtype":"F32","shape":"2","data_offsets":[0,8]}})", eight, "shape"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", eight, "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", eight, "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}})",
       eight, "overflows"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", "",
       "do not need"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":)"
       R"([9223372036854775808,18446744073709551615]}})",
       eight, ""},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,)"
       R"(18446744073709551615]}})",
       eight, "overflow"},
      {R"({"a":[1]})", "", "no object"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       eight, "twice"},
      {R"({"a":)", eight, "not valid JSON"},
      {R"([1])", "", "no JSON object"},
      {"", "", "no JSON object"},
      {R"({"__metadata__":3})", "", "__metadata__"},
  };
  const TempFolder folder;
  for (const BadFile& bad : cases) {
    const std::string path =
        folder.Write("bad.safetensors", SafetensorsBytes(bad.header, bad.data));
    const auto file = SafetensorsFile::Open(path);
    ASSERT_FALSE(file.ok()) << bad.header;
    const std::string& message = file.status().message();
    EXPECT_NE(message.find(bad.needed), std::string::npos) << bad.header << " -> " << message;
    EXPECT_NE(message.find("bad.safetensors"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(SafetensorsFile, OtherFilesAreNamedForWhatTheyAre) {
  const TempFolder folder;
  const auto error_of = [&](const std::string& bytes) {
    const auto file = SafetensorsFile::Open(folder.Write("x.safetensors", bytes));
    return file.ok() ? std::string("accepted") : file.status().message();
  };
  EXPECT_NE(error_of("").find("0 bytes"), std::string::npos);
  EXPECT_NE(error_of("1234567").find("7 bytes"), std::string::npos);
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:"
      "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
  EXPECT_NE(error_of(pointer).find("git lfs pull"), std::string::npos);
  EXPECT_NE(error_of(std::string("\x50\x4b\x03\x04") + std::string(60, '\x14')).find("not a safet"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(8, '\xFF')).find("not a safetensors"), std::string::npos);
  EXPECT_NE(error_of(SafetensorsBytes("{}", "").substr(0, 9)).find("truncated"), std::string::npos);
  EXPECT_EQ(error_of(SafetensorsBytes("{}", "")), "accepted");
  EXPECT_EQ(error_of(SafetensorsBytes("{}      ", "")), "accepted");  // padded with spaces
  EXPECT_FALSE(SafetensorsFile::Open(folder.path()).ok());
  EXPECT_FALSE(SafetensorsFile::Open(folder.path() + "/none").ok());
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(SafetensorsFile::Open(pipe).ok());
}

// Every prefix and every single changed byte of a good file: an error or a file, never a crash.
TEST(SafetensorsFile, DamagedFilesNeverCrash) {
  const TempFolder folder;
  const std::string good = SafetensorsBytes(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]}})",
      std::string(12, 'q'));
  const std::string path = folder.path() + "/x.safetensors";
  int refused = 0;
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    folder.Write("x.safetensors", good.substr(0, bytes));
    refused += !SafetensorsFile::Open(path).ok();
  }
  EXPECT_EQ(refused, static_cast<int>(good.size()));
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    bad[random() % bad.size()] = static_cast<char>(random());
    folder.Write("x.safetensors", bad);
    const auto file = SafetensorsFile::Open(path);
    if (!file.ok()) continue;
    for (const TensorEntry& tensor : file.value()->tensors()) {
      std::string bytes(tensor.bytes, '\0');
      EXPECT_TRUE(file.value()->ReadBytes(tensor, 0, tensor.bytes, bytes.data()).ok());
    }
  }
}

TEST(SafetensorsFile, BecomingShorterIsAnErrorNotASignal) {
  const TempFolder folder;
  const std::string path = folder.Write(
      "x.safetensors",
      SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[4096],"data_offsets":[0,16384]}})",
                       std::string(16384, 'x')));
  const auto file = SafetensorsFile::Open(path).value().release();
  const std::unique_ptr<SafetensorsFile> owner(file);
  ASSERT_EQ(truncate(path.c_str(), 200), 0);
  std::vector<float> out(4096);
  const Status status = file->ReadFloats(file->tensors()[0], 0, 4096, out.data());
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  EXPECT_NE(status.message().find("tensor a"), std::string::npos);
}

TEST(FloatConvert, AgreesWithTheDefinitionOnEveryValue) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const int exponent = (bits >> 10) & 0x1F;
    const int fraction = bits & 0x3FF;
    const float fp16 = FloatFromFp16(half);
    EXPECT_EQ(std::signbit(fp16), (bits & 0x8000) != 0);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(fp16), fraction != 0);
      EXPECT_EQ(std::isinf(fp16), fraction == 0);
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(std::fabs(fp16), magnitude) << bits;
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(FloatFromBf16(half)), bits << 16);
  }
}

TEST(SafetensorsWriter, WhatIsWrittenIsReadBack) {
  const TempFolder folder;
  const std::string path = folder.path() + "/m.safetensors";
  const std::vector<TensorSpec> specs = {{"b.weight", TensorType::kFp32, {3, 5}},
                                         {"a \"quoted\"/é", TensorType::kBf16, {7}},
                                         {"scalar", TensorType::kFp32, {}},
                                         {"empty", TensorType::kFp16, {0, 4}}};
  std::vector<float> values(15);
  for (int i = 0; i < 15; ++i) values[i] = 0.1f * static_cast<float>(i) - 0.7f;
  const std::vector<uint16_t> halves = {0x3F80, 0xBF80, 0x0001, 0x7F80, 0, 0x8000, 0x4049};
  const float scalar = -2.5f;
  std::string data(reinterpret_cast<const char*>(values.data()), 60);
  data.append(reinterpret_cast<const char*>(halves.data()), 14);
  data.append(reinterpret_cast<const char*>(&scalar), 4);
  auto writer = SafetensorsWriter::Create(path, specs).value();
  EXPECT_FALSE(std::filesystem::exists(path));       // not before it is whole
  for (size_t at = 0; at < data.size(); at += 11) {  // pieces that fit no tensor
    const size_t count = std::min<size_t>(11, data.size() - at);
    ASSERT_TRUE(writer->Append(std::as_bytes(std::span(data.data() + at, count))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(std::filesystem::file_size(path), writer->file_bytes());
  const auto file = SafetensorsFile::Open(path).value().release();
  const std::unique_ptr<SafetensorsFile> owner(file);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  ASSERT_EQ(file->tensors().size(), 4u);
  const TensorEntry* b = file->Find("b.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dims, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(b->offset % 8, 0u);
  std::vector<float> out(9);
  ASSERT_TRUE(file->ReadFloats(*b, 4, 9, out.data()).ok());
  EXPECT_EQ(std::memcmp(out.data(), values.data() + 4, 36), 0);
  const TensorEntry* a = file->Find(specs[1].name);
  ASSERT_NE(a, nullptr);
  out.resize(5);
  ASSERT_TRUE(file->ReadFloats(*a, 1, 5, out.data()).ok());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), uint32_t{halves[i + 1]} << 16);
  }
  ASSERT_TRUE(file->ReadFloats(*file->Find("scalar"), 0, 1, out.data()).ok());
  EXPECT_EQ(out[0], scalar);
  EXPECT_EQ(file->Find("empty")->elements, 0u);
  EXPECT_EQ(file->Find("none"), nullptr);
}

TEST(SafetensorsWriter, ADroppedWriterLeavesNothing) {
  const TempFolder folder;
  {
    auto writer = SafetensorsWriter::Create(folder.path() + "/m.safetensors",
                                            {{"a", TensorType::kFp32, {1000}}})
                      .value();
    const std::vector<std::byte> some(100);
    ASSERT_TRUE(writer->Append(some).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace marea
