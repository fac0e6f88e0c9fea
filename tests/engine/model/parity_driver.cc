// Runs one step of a model on weights and batches that transformers_parity.py wrote, and leaves
// loss and gradients where it reads them.
//
//   parity_driver FOLDER SEQUENCES LENGTH MICRO_BATCHES fp32|bf16
//
// FOLDER holds config.json, tokens.bin and labels.bin (int32), weights.bin (fp32), and every
// parameter as parameters/<name> (raw fp32). Leaves gradients/<name> (raw fp32), tensors.txt (one
// name a line), and prints {"loss": ..., "eval_loss": ...}, weighted means.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/model/torch_runtime.h"
#include "io/check.h"
#include "tests/engine/model/model_harness.h"

namespace marea {
namespace {

template <typename Element>
std::vector<Element> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  MAREA_CHECK(file.good(), path.c_str());
  std::vector<Element> values(std::filesystem::file_size(path) / sizeof(Element));
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(Element)));
  MAREA_CHECK(file.good(), path.c_str());
  return values;
}

std::vector<HostBatch> ReadBatches(const std::filesystem::path& folder, const BatchShape& shape,
                                   size_t count) {
  const std::vector<int32_t> tokens = ReadFile<int32_t>(folder / "tokens.bin");
  const std::vector<int32_t> labels = ReadFile<int32_t>(folder / "labels.bin");
  const std::vector<float> weights = ReadFile<float>(folder / "weights.bin");
  const size_t size = size_t{shape.sequences} * shape.sequence_length;
  MAREA_CHECK(tokens.size() == count * size && labels.size() == count * size &&
                  weights.size() == count * size,
              "the batch files have another size");
  std::vector<HostBatch> batches;
  for (size_t i = 0; i < count; ++i) {
    const size_t first = i * size;
    const size_t last = first + size;
    batches.push_back({{tokens.begin() + first, tokens.begin() + last},
                       {labels.begin() + first, labels.begin() + last},
                       {weights.begin() + first, weights.begin() + last}});
  }
  return batches;
}

void Run(char** arguments) {
  const std::filesystem::path folder = arguments[1];
  const BatchShape shape = {static_cast<uint32_t>(std::atoi(arguments[2])),
                            static_cast<uint32_t>(std::atoi(arguments[3]))};
  const std::vector<HostBatch> batches =
      ReadBatches(folder, shape, static_cast<size_t>(std::atoi(arguments[4])));
  const Precision precision =
      std::string(arguments[5]) == "bf16" ? Precision::kBf16 : Precision::kFp32;

  std::ifstream config_file(folder / "config.json");
  const std::string text{std::istreambuf_iterator<char>(config_file), {}};
  ModelHarness model(ParsedConfig(text), shape, precision, /*seed=*/1);
  std::ofstream names(folder / "tensors.txt");
  for (const GroupShape& group : model.shape().groups) {
    for (const TensorShape& tensor : group.tensors) {
      model.SetTensor(tensor.name, ReadFile<float>(folder / "parameters" / tensor.name));
      names << tensor.name << "\n";
    }
  }
  const double loss_sum = model.Step(batches, batches.size());
  for (const GroupShape& group : model.shape().groups) {
    for (const TensorShape& tensor : group.tensors) {
      const std::vector<float> gradient = model.Gradient(tensor.name);
      std::ofstream file(folder / "gradients" / tensor.name, std::ios::binary);
      file.write(reinterpret_cast<const char*>(gradient.data()),
                 static_cast<std::streamsize>(gradient.size() * sizeof(float)));
    }
  }
  fmt::print("{{\"loss\": {}, \"eval_loss\": {}}}\n", loss_sum / model.total_weight(),
             model.Evaluate(batches) / model.total_weight());
}

}  // namespace
}  // namespace marea

int main(int argc, char** argv) {
  MAREA_CHECK(argc == 6, "parity_driver FOLDER SEQUENCES LENGTH MICRO_BATCHES fp32|bf16");
  marea::StartTorchRuntime({.threads = 2});
  marea::Run(argv);
  return 0;
}
