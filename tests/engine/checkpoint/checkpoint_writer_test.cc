#include "engine/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/checkpoint/model_weights.h"
#include "tests/engine/checkpoint/full_disk.h"
#include "tests/engine/checkpoint/tiny_models.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

// What ValueOf says, in the checkpoint's precision. The values have at most 12 significant bits, so
// bf16 takes their upper half.
TensorSource Source(Precision precision) {
  return
      [precision](uint32_t, const TensorShape& tensor, uint64_t first, std::span<std::byte> out) {
        const uint64_t bytes = WeightBytes(precision);
        for (uint64_t i = 0; i < out.size() / bytes; ++i) {
          const float value = ValueOf(tensor.name, first + i);
          const auto* from = reinterpret_cast<const std::byte*>(&value);
          std::memcpy(out.data() + i * bytes, from + (4 - bytes), bytes);
        }
        return Status::Ok();
      };
}

void ExpectCheckpoint(const std::string& folder, const ModelShape& shape, Precision precision,
                      const std::string& config) {
  EXPECT_EQ(ReadWholeFile(folder + "/config.json"), config);
  const auto weights = ModelWeights::Open(folder + "/model.safetensors", shape);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_TRUE(weights.value()->notices().empty());
  uint64_t elements = 0;
  for (const GroupShape& group : shape.groups) {
    for (const TensorShape& tensor : group.tensors) {
      std::vector<float> values(tensor.elements);
      ASSERT_TRUE(weights.value()->Read(tensor, 0, tensor.elements, values.data()).ok());
      for (uint64_t i = 0; i < tensor.elements; ++i) {
        float expected = ValueOf(tensor.name, i);
        if (precision == Precision::kBf16) std::memset(&expected, 0, 2);
        ASSERT_EQ(values[i], expected);
      }
      elements += tensor.elements;
    }
  }
  EXPECT_EQ(elements, shape.parameters);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    (void)entry;
    ++files;
  }
  EXPECT_EQ(files, 2);
}

TEST(WriteCheckpoint, WritesAFolderThatLoads) {
  const std::string config = std::string(kTinyLlamaTied) + "\n \n";
  const ModelShape shape = ShapeOf(config);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const TempFolder folder;
    const std::string target = folder.path() + "/out/checkpoint";
    ASSERT_TRUE(WriteCheckpoint(target + "/", config, shape, precision, Source(precision)).ok());
    ExpectCheckpoint(target, shape, precision, config);
    EXPECT_FALSE(std::filesystem::exists(target + ".partial"));
  }
}

// A tensor of more than one piece: pieces are asked for in order, cover it, and are bounded.
TEST(WriteCheckpoint, PiecesAreBoundedAndCoverEveryElement) {
  const std::string config =
      R"({"model_type": "llama", "hidden_size": 512, "intermediate_size": 64,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 20001, "max_position_embeddings": 128, "tie_word_embeddings": true})";
  const ModelShape shape = ShapeOf(config);
  const TempFolder folder;
  uint64_t next = 0, pieces = 0, elements = 0;
  std::string name;
  const TensorSource source = [&](uint32_t group, const TensorShape& tensor, uint64_t first,
                                  std::span<std::byte> out) {
    const auto& tensors = shape.groups[group].tensors;
    EXPECT_TRUE(&tensor >= tensors.data() && &tensor < tensors.data() + tensors.size());
    if (tensor.name != name) next = 0;
    name = tensor.name;
    EXPECT_EQ(first, next);
    next += out.size() / 4;
    EXPECT_LE(next, tensor.elements);
    EXPECT_LE(out.size(), kCheckpointPieceBytes);
    elements += out.size() / 4;
    ++pieces;
    return Source(Precision::kFp32)(group, tensor, first, out);
  };
  const std::string target = folder.path() + "/checkpoint";
  ASSERT_TRUE(WriteCheckpoint(target, config, shape, Precision::kFp32, source).ok());
  EXPECT_EQ(elements, shape.parameters);
  EXPECT_GT(pieces, TensorsOf(shape).size());
  ExpectCheckpoint(target, shape, Precision::kFp32, config);
}

TEST(WriteCheckpoint, TheOldFolderStandsUntilTheNewOneIsWhole) {
  const ModelShape shape = ShapeOf(kTinyGpt2);
  const TempFolder folder;
  const std::string target = folder.path() + "/checkpoint";
  folder.Write("checkpoint/config.json", "old");
  folder.Write("checkpoint/model-00001-of-00002.safetensors", "stale");
  folder.Write("checkpoint.partial/junk", "left by a process that died");
  int calls = 0;
  const Status failed = WriteCheckpoint(
      target, kTinyGpt2, shape, Precision::kFp32,
      [&](uint32_t group, const TensorShape& tensor, uint64_t first, std::span<std::byte> out) {
        if (++calls == 5) return Status::Io("reading a shard", EIO);
        return Source(Precision::kFp32)(group, tensor, first, out);
      });
  EXPECT_EQ(failed.error_number(), EIO);
  EXPECT_EQ(ReadWholeFile(target + "/config.json"), "old");
  EXPECT_FALSE(std::filesystem::exists(target + ".partial"));
  ASSERT_TRUE(
      WriteCheckpoint(target, kTinyGpt2, shape, Precision::kFp32, Source(Precision::kFp32)).ok());
  ExpectCheckpoint(target, shape, Precision::kFp32, kTinyGpt2);  // the stale file is gone
  EXPECT_FALSE(std::filesystem::exists(target + ".partial"));
}

TEST(WriteCheckpoint, FullDiskKeepsTheOldCheckpoint) {
  const ModelShape shape = ShapeOf(kTinyGpt2);  // about 500 KB in fp32
  const TempFolder folder;
  const std::string target = folder.path() + "/checkpoint";
  const int result = OnSmallFileSystem(folder.path(), 700'000, [&] {
    const TensorSource source = Source(Precision::kFp32);
    if (!WriteCheckpoint(target, kTinyGpt2, shape, Precision::kFp32, source).ok()) return 1;
    int calls = 0;
    const Status status = WriteCheckpoint(
        target, kTinyGpt2, shape, Precision::kFp32,
        [&](uint32_t group, const TensorShape& tensor, uint64_t first, std::span<std::byte> out) {
          ++calls;
          return source(group, tensor, first, out);
        });
    if (status.ok() || status.error_number() != ENOSPC) return 2;
    if (status.message().find("model.safetensors") == std::string::npos) return 3;
    if (calls != 0) return 4;  // known before the first byte
    if (!ModelWeights::Open(target + "/model.safetensors", shape).ok()) return 5;
    if (std::filesystem::exists(target + ".partial")) return 6;
    return 0;
  });
  if (result == kCannotMount) GTEST_SKIP() << "mounting a small file system is not allowed here";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace marea
