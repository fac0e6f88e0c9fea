#include "engine/checkpoint/model_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

#define EXPECT_HAS(message, text)                                        \
  do {                                                                   \
    const std::string has_message = (message);                           \
    EXPECT_NE(has_message.find(text), std::string::npos) << has_message; \
  } while (false)

std::string ErrorOf(const std::string& path) {
  const Result<ModelFolder> model = OpenModelFolder(path);
  if (model.ok()) return "accepted";
  EXPECT_EQ(model.status().code(), ErrorCode::kInvalidArgument);
  return model.status().message();
}

TEST(ModelFolder, ConfigAloneOrWithWeights) {
  const TempFolder folder;
  const std::string config = folder.Write("config.json", "{\"a\":  1}\n");
  ModelFolder model = OpenModelFolder(folder.path()).value();
  EXPECT_EQ(model.config_text, "{\"a\":  1}\n");
  EXPECT_EQ(model.config_path, config);
  EXPECT_FALSE(model.weights_path.has_value());
  folder.Write("training_args.bin", "x");
  EXPECT_FALSE(OpenModelFolder(folder.path() + "/").value().weights_path.has_value());
  folder.Write("model.safetensors", "x");
  model = OpenModelFolder(folder.path() + "//").value();
  EXPECT_EQ(model.weights_path, folder.path() + "/model.safetensors");
  EXPECT_TRUE(model.notices.empty());
  folder.Write("adapter_model.safetensors", "x");
  model = OpenModelFolder(folder.path()).value();
  EXPECT_EQ(model.weights_path, folder.path() + "/model.safetensors");
  ASSERT_EQ(model.notices.size(), 1u);
  EXPECT_HAS(model.notices[0], "adapter_model.safetensors");
  // The file itself: random values, said so.
  model = OpenModelFolder(config).value();
  EXPECT_FALSE(model.weights_path.has_value());
  ASSERT_EQ(model.notices.size(), 1u);
  EXPECT_HAS(model.notices[0], "random");
}

TEST(ModelFolder, LinksAreFollowed) {
  const TempFolder folder;
  folder.Write("blobs/c", "{}");
  folder.Write("blobs/w", "w");
  std::filesystem::create_directories(folder.path() + "/snapshots/1");
  std::filesystem::create_symlink("../../blobs/c", folder.path() + "/snapshots/1/config.json");
  std::filesystem::create_symlink("../../blobs/w",
                                  folder.path() + "/snapshots/1/model.safetensors");
  const ModelFolder model = OpenModelFolder(folder.path() + "/snapshots/1").value();
  EXPECT_EQ(model.config_text, "{}");
  EXPECT_TRUE(model.weights_path.has_value());
}

TEST(ModelFolder, WeightsThatCannotBeLoadedAreNotReplacedByRandomOnes) {
  const char* names[] = {"model.safetensors.index.json", "model-00001-of-00003.safetensors",
                         "consolidated.safetensors", "pytorch_model.bin", "consolidated.00.pth"};
  for (const char* name : names) {
    const TempFolder folder;
    folder.Write("config.json", "{}");
    folder.Write(name, "x");
    EXPECT_HAS(ErrorOf(folder.path()), name);
    EXPECT_HAS(ErrorOf(folder.path()), "model.safetensors");
  }
}

TEST(ModelFolder, WhatIsNoModel) {
  const TempFolder folder;
  EXPECT_HAS(ErrorOf(folder.path()), "has no config.json");
  EXPECT_HAS(ErrorOf(folder.path() + "/none"), "does not exist");
  folder.Write("file", "x");
  EXPECT_HAS(ErrorOf(folder.path() + "/file/below"), "file/below");
  std::filesystem::create_symlink(folder.path() + "/gone", folder.path() + "/config.json");
  EXPECT_HAS(ErrorOf(folder.path()), "config.json");
}

}  // namespace
}  // namespace marea
