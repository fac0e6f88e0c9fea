#include "engine/checkpoint/model_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/engine/checkpoint/tiny_models.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

// Every value of the model through `weights` is the one its name says.
void ExpectValues(const ModelWeights& weights, const ModelShape& shape) {
  for (const GroupShape& group : shape.groups) {
    for (const TensorShape& tensor : group.tensors) {
      std::vector<float> values(tensor.elements);
      ASSERT_TRUE(weights.Read(tensor, 0, tensor.elements, values.data()).ok());
      for (uint64_t i = 0; i < tensor.elements; ++i) {
        ASSERT_EQ(values[i], ValueOf(tensor.name, i)) << tensor.name << " " << i;
      }
    }
  }
}

class ModelWeightsTest : public ::testing::Test {
 protected:
  std::string Write(const std::vector<FileTensor>& tensors) {
    const std::string path = folder_.path() + "/model.safetensors";
    EXPECT_TRUE(WriteTensors(path, tensors).ok());
    return path;
  }

  // Expects the file to load with the right values; returns the notices, joined.
  std::string Accept(const ModelShape& shape, const std::vector<FileTensor>& tensors) {
    const auto weights = ModelWeights::Open(Write(tensors), shape);
    EXPECT_TRUE(weights.ok()) << weights.status().message();
    if (!weights.ok()) return "refused";
    ExpectValues(*weights.value(), shape);
    std::string notices;
    for (const std::string& notice : weights.value()->notices()) notices += notice + "\n";
    return notices;
  }

  std::string Refuse(const ModelShape& shape, const std::vector<FileTensor>& tensors) {
    const auto weights = ModelWeights::Open(Write(tensors), shape);
    EXPECT_FALSE(weights.ok());
    if (weights.ok()) return "accepted";
    const std::string& message = weights.status().message();
    EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_LT(message.size(), 400u) << message;
    return message;
  }

  TempFolder folder_;
};

#define EXPECT_HAS(message, text)                                        \
  do {                                                                   \
    const std::string has_message = (message);                           \
    EXPECT_NE(has_message.find(text), std::string::npos) << has_message; \
  } while (false)

std::vector<FileTensor> Renamed(std::vector<FileTensor> tensors, const std::string& prefix) {
  for (FileTensor& tensor : tensors) tensor.name = prefix + tensor.name;
  return tensors;
}

std::vector<FileTensor> WithoutBase(std::vector<FileTensor> tensors, const std::string& base) {
  for (FileTensor& tensor : tensors) {
    if (tensor.name.starts_with(base)) tensor.name = tensor.name.substr(base.size());
  }
  return tensors;
}

TEST_F(ModelWeightsTest, PrefixesAreSeenThroughWithANotice) {
  for (const char* config : {kTinyGpt2, kTinyLlama, kTinyLlamaTied}) {
    const ModelShape shape = ShapeOf(config);
    const std::string base =
        shape.config.architecture == Architecture::kGpt2 ? "transformer." : "model.";
    const std::vector<FileTensor> plain = TensorsOf(shape);
    EXPECT_EQ(Accept(shape, plain), "");
    for (const char* prefix : {"_orig_mod.", "module.", "module._orig_mod.", "model.", "net."}) {
      EXPECT_HAS(Accept(shape, Renamed(plain, prefix)),
                 std::string("without their prefix ") + prefix);
    }
    const std::vector<FileTensor> bare = WithoutBase(plain, base);
    EXPECT_HAS(Accept(shape, bare), "with " + base + " before them");
    EXPECT_HAS(Accept(shape, Renamed(bare, "_orig_mod.")), "with " + base + " before them");
  }
}

TEST_F(ModelWeightsTest, MaskBuffersAreIgnored) {
  const ModelShape shape = ShapeOf(kTinyGpt2);
  for (const bool bare : {false, true}) {
    std::vector<FileTensor> tensors = TensorsOf(shape);
    for (const char* layer : {"0", "1"}) {
      const std::string prefix = std::string("transformer.h.") + layer + ".attn.";
      tensors.push_back({prefix + "bias", "mask", {1, 1, 128, 128}});
      tensors.push_back({prefix + "masked_bias", "mask", {}});
    }
    Accept(shape, bare ? WithoutBase(tensors, "transformer.") : tensors);
  }
}

TEST_F(ModelWeightsTest, TiedHead) {
  const ModelShape shape = ShapeOf(kTinyLlamaTied);
  const std::string embedding = "model.embed_tokens.weight";
  std::vector<FileTensor> tensors = TensorsOf(shape);
  tensors.push_back({"lm_head.weight", embedding, {256, 64}});
  EXPECT_EQ(Accept(shape, tensors), "");  // identical
  tensors.back().values_of = "something else";
  EXPECT_HAS(Refuse(shape, tensors), "lm_head.weight differs from model.embed_tokens.weight");
  EXPECT_HAS(Refuse(shape, tensors), "tie_word_embeddings");
  tensors.back() = {"lm_head.weight", embedding, {64, 256}};
  EXPECT_HAS(Refuse(shape, tensors), "differs");
  // The head in the embedding's place.
  tensors.back() = {"lm_head.weight", embedding, {256, 64}};
  std::erase_if(tensors, [&](const FileTensor& tensor) { return tensor.name == embedding; });
  EXPECT_HAS(Accept(shape, tensors), "taken from lm_head.weight");
}

TEST_F(ModelWeightsTest, MismatchesAreOneShortLine) {
  const ModelShape shape = ShapeOf(kTinyLlama);
  std::vector<FileTensor> tensors = TensorsOf(shape);
  tensors.erase(tensors.begin() + 3, tensors.begin() + 6);
  EXPECT_HAS(Refuse(shape, tensors), TensorsOf(shape)[3].name + " and 2 more missing");
  tensors = TensorsOf(shape);
  tensors.push_back({"score.weight", "x", {2, 64}});
  EXPECT_HAS(Refuse(shape, tensors), "score.weight not part of the model");
  EXPECT_HAS(Refuse(ShapeOf(kTinyGpt2), TensorsOf(shape)), "missing");
  EXPECT_HAS(Refuse(shape, {}), "missing");
  // Untied, but without a head.
  EXPECT_HAS(Refuse(shape, TensorsOf(ShapeOf(kTinyLlamaTied))), "tensor lm_head.weight missing");
}

TEST_F(ModelWeightsTest, AMixOfPrefixesIsRefused) {
  const ModelShape shape = ShapeOf(kTinyGpt2);
  std::vector<FileTensor> tensors = TensorsOf(shape);
  FileTensor twin = tensors[4];
  twin.name = "module." + twin.name;
  tensors.push_back(twin);
  EXPECT_HAS(Refuse(shape, tensors),
             twin.name + " and " + tensors[4].name + " name the same tensor");
  tensors = TensorsOf(shape);
  twin = tensors[4];
  twin.name = twin.name.substr(std::string("transformer.").size());
  tensors.push_back(twin);
  EXPECT_HAS(Refuse(shape, tensors), "name the same tensor");
  tensors = TensorsOf(shape);
  tensors[4].name = "module." + tensors[4].name;  // one of them only
  EXPECT_HAS(Refuse(shape, tensors), "missing");
}

TEST_F(ModelWeightsTest, WrongDimsNameBothAndTheTensor) {
  const ModelShape shape = ShapeOf(kTinyLlama);
  std::vector<FileTensor> tensors = TensorsOf(shape);
  for (FileTensor& tensor : tensors) {
    if (tensor.name == "model.embed_tokens.weight") tensor.dims = {257, 64};
  }
  const std::string message = Refuse(shape, tensors);
  EXPECT_HAS(message, "model.embed_tokens.weight is [257, 64]");
  EXPECT_HAS(message, "config.json makes it [256, 64]");
}

}  // namespace
}  // namespace marea
