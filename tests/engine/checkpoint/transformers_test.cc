// What Transformers saves is loaded, and what is written is loaded by Transformers, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/checkpoint/model_weights.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

int RunPeer(const char* verb, const std::string& folder) {
  const std::string command = fmt::format("{} {} {} {}", MAREA_PYTHON, MAREA_PEER, verb, folder);
  return std::system(command.c_str());
}

// Loads a model and writes it again as a checkpoint below it.
void Copy(const std::string& folder, Precision precision) {
  SCOPED_TRACE(folder);
  const ModelFolder model = OpenModelFolder(folder).value();
  const ModelConfig config = ParseModelConfig(model.config_text, model.config_path).value();
  const ModelShape shape = MakeModelShape(config, {1, 8}, precision, 1);
  ASSERT_TRUE(model.weights_path.has_value());
  const auto opened = ModelWeights::Open(*model.weights_path, shape);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const ModelWeights& weights = *opened.value();
  EXPECT_TRUE(weights.notices().empty());
  const uint64_t bytes = WeightBytes(precision);
  const Status written = WriteCheckpoint(
      folder + "/checkpoint", model.config_text, shape, precision,
      [&](uint32_t, const TensorShape& tensor, uint64_t first, std::span<std::byte> out) {
        std::vector<float> values(out.size() / bytes);
        MAREA_RETURN_IF_ERROR(weights.Read(tensor, first, values.size(), values.data()));
        // bf16 models hold values that bf16 holds exactly: their upper half.
        for (size_t i = 0; i < values.size(); ++i) {
          const auto* from = reinterpret_cast<const std::byte*>(&values[i]);
          std::memcpy(out.data() + i * bytes, from + (4 - bytes), bytes);
        }
        return Status::Ok();
      });
  ASSERT_TRUE(written.ok()) << written.message();
}

void WriteFloatsOfHalves(const std::string& folder) {
  const auto opened = SafetensorsFile::Open(folder + "/halves.safetensors");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const SafetensorsFile& file = *opened.value();
  EXPECT_EQ(file.Find("bits")->type, TensorType::kOther);
  auto writer = SafetensorsWriter::Create(
                    folder + "/floats.safetensors",
                    {{"half", TensorType::kFp32, {65536}}, {"bf16", TensorType::kFp32, {65536}}})
                    .value();
  for (const char* name : {"half", "bf16"}) {
    std::vector<float> values(65536);
    ASSERT_TRUE(file.ReadFloats(*file.Find(name), 0, values.size(), values.data()).ok());
    ASSERT_TRUE(writer->Append(std::as_bytes(std::span(values))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
}

TEST(Transformers, RoundTrip) {
  if (!std::filesystem::exists(MAREA_PYTHON)) GTEST_SKIP() << "no Python environment: make setup";
  const TempFolder folder;
  ASSERT_EQ(RunPeer("make", folder.path()), 0);
  for (const char* name : {"gpt2", "llama", "llama_tied"}) {
    Copy(fmt::format("{}/{}", folder.path(), name), Precision::kFp32);
    Copy(fmt::format("{}/{}_bf16", folder.path(), name), Precision::kBf16);
  }
  WriteFloatsOfHalves(folder.path());
  EXPECT_EQ(RunPeer("check", folder.path()), 0);
}

}  // namespace
}  // namespace marea
