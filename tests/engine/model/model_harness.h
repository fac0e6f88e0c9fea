// A model that lives wholly in memory and runs the real block arithmetic: what the trainer does,
// without plan and paging. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/block_compute.h"
#include "engine/model/model_shape.h"

namespace marea {

// A micro-batch that owns its arrays.
struct HostBatch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;
  std::vector<float> weights;

  MicroBatch view() const { return {tokens.data(), labels.data(), weights.data()}; }
};

// Random tokens and labels of `config`'s vocabulary; weights are 1, and 0 for about one in eight.
HostBatch RandomBatch(const ModelConfig& config, const BatchShape& shape, uint64_t seed);

class ModelHarness {
 public:
  // Weights are drawn with `seed`. Groups named in `frozen` are.
  ModelHarness(const ModelConfig& config, const BatchShape& batch, Precision precision,
               uint64_t seed, const std::vector<std::string>& frozen = {});

  const ModelShape& shape() const { return shape_; }
  BlockCompute& compute() { return *compute_; }

  // Reads or writes a tensor by its name, as fp32.
  void SetTensor(const std::string& name, const std::vector<float>& values);
  std::vector<float> Gradient(const std::string& name) const;

  // Forward and backward of all micro-batches, in waves; leaves the reduced gradients. Returns the
  // loss sum. Accumulators hold NaN before, so that reading one before writing it shows.
  double Step(const std::vector<HostBatch>& batches, size_t wave);
  // The loss sum, forward only.
  double Evaluate(const std::vector<HostBatch>& batches);

  // Of the last Step: the reduced gradient of each trainable group (fp32, empty where frozen), and
  // the sum of squares over all.
  const std::vector<std::vector<float>>& gradients() const { return gradients_; }
  double square_sum() const { return square_sum_; }
  double total_weight() const { return total_weight_; }

  // The spans of a block's weights.
  std::vector<ByteSpan> Weights(uint32_t block);

 private:
  struct Use {
    uint32_t block;
    uint32_t group;
    std::vector<float> sum;
  };
  std::vector<ByteSpan> Accumulators(uint32_t block);
  void ForwardWave(const std::vector<HostBatch>& batches, size_t first, size_t last);
  void BackwardWave(const std::vector<HostBatch>& batches, size_t first, size_t last);
  void ReduceAll();

  ModelShape shape_;
  BatchShape batch_;
  Precision precision_;
  std::unique_ptr<BlockCompute> compute_;
  std::vector<std::vector<std::byte>> weights_;              // by group
  std::vector<Use> uses_;                                    // embedding first
  std::vector<std::vector<std::vector<std::byte>>> inputs_;  // [block][place in wave]
  std::vector<std::vector<float>> gradients_;
  double total_weight_ = 0;
  double loss_sum_ = 0;
  double square_sum_ = 0;
};

// The text of a config.json, parsed; stops the test program if it is refused.
ModelConfig ParsedConfig(const std::string& text);

}  // namespace marea
