#include "engine/model/workspace.h"

#include <algorithm>

#include "io/units.h"

namespace marea {
namespace {

// What small tensors (statistics of norms, biases' gradients) and scratch of attention kernels add
// up to, whatever the model.
constexpr uint64_t kSmallBytes = 256 * kKiB;

// The sizes that all formulas are made of, in bytes.
struct Sizes {
  uint64_t tokens;
  uint64_t element;  // of the compute type
  uint64_t hidden;   // [tokens, hidden]
  uint64_t hidden_fp32;
  uint64_t inner;       // [tokens, intermediate]
  uint64_t query;       // [tokens, heads * head_dim]
  uint64_t key;         // [tokens, kv_heads * head_dim]
  uint64_t statistics;  // attention's log-sum-exp and the norms' rows, fp32
  uint64_t gradients;   // of the block's parameters
};

Sizes MakeSizes(const ModelConfig& config, const BatchShape& batch, Precision precision,
                uint64_t parameters) {
  Sizes s;
  s.tokens = uint64_t{batch.sequences} * batch.sequence_length;
  s.element = WeightBytes(precision);
  s.hidden = s.tokens * config.hidden * s.element;
  s.hidden_fp32 = s.tokens * config.hidden * sizeof(float);
  s.inner = s.tokens * config.intermediate * s.element;
  s.query = s.tokens * config.heads * config.head_dim * s.element;
  s.key = s.tokens * config.kv_heads * config.head_dim * s.element;
  s.statistics = s.tokens * (config.heads + 8) * sizeof(float);
  s.gradients = parameters * s.element;
  return s;
}

Workspace Gpt2LayerWorkspace(const Sizes& s) {
  // ln_1, qkv, attended, projected, sum; then ln_2 and the two sides of gelu.
  const uint64_t attention = 7 * s.hidden;
  const uint64_t feed_forward = 2 * s.hidden + std::max(2 * s.inner, s.inner + 2 * s.hidden);
  // Kept for backward: ln_1, qkv, attended, middle, ln_2, both sides of gelu, output.
  const uint64_t feed_forward_back = 8 * s.hidden + 3 * s.inner;
  const uint64_t attention_back = 11 * s.hidden;
  return {std::max(attention, feed_forward) + s.statistics + kSmallBytes,
          std::max(feed_forward_back, attention_back) + s.gradients + s.statistics + kSmallBytes};
}

Workspace LlamaLayerWorkspace(const Sizes& s) {
  const uint64_t attention = 8 * s.hidden;
  return {attention + s.statistics + kSmallBytes,
          attention + s.gradients + s.statistics + kSmallBytes};
}

Workspace HeadWorkspace(const ModelConfig& config, const BatchShape& batch, const Sizes& s) {
  const uint64_t chunk = LossChunkRows(config, batch) * config.vocabulary * sizeof(float);
  return {2 * chunk + s.hidden + kSmallBytes, 2 * chunk + 3 * s.hidden + kSmallBytes};
}

}  // namespace

Workspace BlockWorkspace(const ModelConfig& config, const BatchShape& batch, Precision precision,
                         BlockKind kind, uint64_t parameters) {
  const Sizes s = MakeSizes(config, batch, precision, parameters);
  switch (kind) {
    case BlockKind::kEmbedding:
      return {0, 0};  // loops over the caller's bytes
    case BlockKind::kLayer:
      return config.architecture == Architecture::kGpt2 ? Gpt2LayerWorkspace(s)
                                                        : LlamaLayerWorkspace(s);
    case BlockKind::kHead:
      break;
  }
  return HeadWorkspace(config, batch, s);
}

double BlockForwardFlops(const ModelConfig& config, const BatchShape& batch, BlockKind kind) {
  const double tokens = double{1} * batch.sequences * batch.sequence_length;
  const double hidden = config.hidden;
  const double query = double{1} * config.heads * config.head_dim;
  const double key = double{1} * config.kv_heads * config.head_dim;
  switch (kind) {
    case BlockKind::kEmbedding:
      return 0;
    case BlockKind::kLayer: {
      const double feed_forward_matrices = config.architecture == Architecture::kGpt2 ? 2 : 3;
      const double weights = hidden * (query + 2 * key) + query * hidden +
                             feed_forward_matrices * hidden * config.intermediate;
      // Scores and weighted values: 2 * 2 * query for each (token, earlier token), half of all
      // pairs.
      const double attention = 2 * tokens * batch.sequence_length * query;
      return 2 * tokens * weights + attention;
    }
    case BlockKind::kHead:
      break;
  }
  return 2 * tokens * hidden * config.vocabulary;
}

uint64_t ComputeFixedBytes(const ModelConfig& config, const BatchShape& batch,
                           Precision precision) {
  if (config.architecture != Architecture::kLlama) return 0;
  return uint64_t{2} * batch.sequence_length * config.head_dim * WeightBytes(precision);
}

}  // namespace marea
