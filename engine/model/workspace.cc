#include "engine/model/workspace.h"

#include <algorithm>

#include "io/units.h"

namespace marea {
namespace {

// Statistics of norms, gradients of biases and other tensors too small to name.
constexpr uint64_t kSmallBytes = 256 * kKiB;

// The sizes that all formulas are made of, in bytes.
struct Sizes {
  uint64_t hidden;             // [tokens, hidden]
  uint64_t hidden_fp32;        // the same in fp32
  uint64_t inner;              // [tokens, intermediate]
  uint64_t query;              // [tokens, heads * head_dim]
  uint64_t key;                // [tokens, kv_heads * head_dim]
  uint64_t small;              // attention's log-sum-exp, the norms' statistics, and kSmallBytes
  uint64_t down;               // gradient of the feed-forward's last matrix
  uint64_t gradients;          // of all of the block's parameters
  uint64_t attention_scratch;  // forward; backward holds the gradients of its tiles as well
  uint64_t forward_scratch;    // of matrix products
  uint64_t backward_scratch;
};

// Each thread of ATen's flash kernels holds a tile of scores (query_rows x 512) in fp32, in bf16 a
// copy of it too, and a tile of results.
uint64_t AttentionScratch(const ModelConfig& config, const BatchShape& batch, Precision precision,
                          uint32_t threads) {
  const uint64_t length = batch.sequence_length;
  const uint64_t tile_rows = length >= 768 ? 256 : length >= 192 ? 64 : 32;
  const uint64_t query_rows = std::min(length, tile_rows);
  const uint64_t key_rows = std::min<uint64_t>(length, 512);
  const uint64_t score_bytes = sizeof(float) + (precision == Precision::kBf16 ? 2 : 0);
  return threads * query_rows * (key_rows * score_bytes + (config.head_dim + 2) * sizeof(float));
}

// oneDNN's bf16 products with a long inner dimension (weights' gradients) may be split over it,
// each thread summing in fp32 apart; large results it splits instead, and short products not at
// all.
uint64_t MatmulScratch(const ModelConfig& config, const BatchShape& batch, Precision precision,
                       uint32_t threads) {
  if (precision == Precision::kFp32) return 0;
  const uint64_t tokens = uint64_t{batch.sequences} * batch.sequence_length;
  const uint64_t columns = config.intermediate * sizeof(float);
  return threads * std::min({config.hidden * columns, tokens * columns, kMiB});
}

Sizes MakeSizes(const ModelConfig& config, const BatchShape& batch, Precision precision,
                uint32_t threads, uint64_t parameters) {
  const uint64_t tokens = uint64_t{batch.sequences} * batch.sequence_length;
  const uint64_t element = WeightBytes(precision);
  Sizes s;
  s.hidden = tokens * config.hidden * element;
  s.hidden_fp32 = tokens * config.hidden * sizeof(float);
  s.inner = tokens * config.intermediate * element;
  s.query = tokens * config.heads * config.head_dim * element;
  s.key = tokens * config.kv_heads * config.head_dim * element;
  s.small = tokens * (config.heads + 8) * sizeof(float) + kSmallBytes;
  s.down = uint64_t{config.hidden} * config.intermediate * element;
  s.gradients = parameters * element;
  s.attention_scratch = AttentionScratch(config, batch, precision, threads);
  s.backward_scratch = MatmulScratch(config, batch, precision, threads);
  // Inner dimensions of forward are those of the model, and seldom worth a split.
  s.forward_scratch = std::min<uint64_t>(s.backward_scratch, threads * 192 * kKiB);
  return s;
}

Workspace Gpt2LayerWorkspace(const Sizes& s) {
  // ln_1, qkv, attended, projected, sum; then middle, ln_2 and the two sides of gelu.
  const uint64_t attention = 7 * s.hidden + s.attention_scratch;
  const uint64_t feed_forward = 2 * s.hidden + std::max(2 * s.inner, s.inner + 2 * s.hidden);
  // Kept for backward: ln_1, qkv (3), attended, middle, ln_2, output, both sides of gelu. On top
  // come the gradient of gelu's output and of the matrix behind it.
  const uint64_t down_back = 8 * s.hidden + 3 * s.inner + s.down;
  // ln_1, qkv, attended, the gradients of middle, attended, projected and of qkv's parts.
  const uint64_t attention_back = 11 * s.hidden + s.gradients + 2 * s.attention_scratch;
  // The input's gradient and all parameters' are handed over together, the output still there.
  const uint64_t end = 4 * s.hidden + s.gradients;
  return {std::max(attention, feed_forward) + s.small + s.forward_scratch,
          std::max({down_back, attention_back, end}) + s.small + s.backward_scratch};
}

// What RmsNorm holds at its peak; what its graph keeps; and what its backward adds at its peak.
struct NormSizes {
  uint64_t forward;
  uint64_t kept;
  uint64_t backward;
};
NormSizes RmsNormSizes(const Sizes& s) {
  const bool rounds = s.hidden != s.hidden_fp32;
  // x in fp32 (its own tensor in bf16 only), x * scale and its rounded form, the result.
  const uint64_t wide = rounds ? s.hidden_fp32 : 0;
  return {2 * s.hidden + 2 * wide, 2 * s.hidden + wide, s.hidden + 4 * s.hidden_fp32};
}

Workspace LlamaLayerWorkspace(const Sizes& s) {
  const NormSizes norm = RmsNormSizes(s);
  // The norm's result, then RoPE's five tensors for query, or for key beside the turned query; then
  // attention on all three.
  const uint64_t attention =
      s.hidden + std::max({5 * s.query, s.query + 5 * s.key,
                           2 * s.query + 2 * s.key + s.hidden + s.attention_scratch});
  // middle, the norm's result, gate, up and their product, the result.
  const uint64_t feed_forward = 3 * s.hidden + 3 * s.inner;
  const uint64_t forward = std::max({s.hidden + norm.forward, attention, feed_forward});

  // Kept for backward: both norms, query, key, value, attended, middle and output; gate, silu, up.
  const uint64_t kept = 2 * norm.kept + 2 * s.query + 2 * s.key;
  // The gradients of the product, of silu and up; the last matrix's.
  const uint64_t down_back = kept + 2 * s.hidden + 6 * s.inner + s.down;
  const uint64_t norm_back = kept + norm.backward + s.gradients;
  const uint64_t attention_back =
      norm.kept + s.hidden + 5 * s.query + 4 * s.key + 2 * s.attention_scratch + s.gradients;
  const uint64_t rope_back = norm.kept + 2 * s.hidden + 6 * s.query + 3 * s.key + s.gradients;
  return {
      forward + s.small + s.forward_scratch,
      std::max({down_back, norm_back, attention_back, rope_back}) + s.small + s.backward_scratch};
}

Workspace HeadWorkspace(const ModelConfig& config, const BatchShape& batch, Precision precision,
                        const Sizes& s) {
  const bool rms = config.architecture == Architecture::kLlama;
  const NormSizes norm = rms ? RmsNormSizes(s) : NormSizes{s.hidden, s.hidden, s.hidden};
  // Logits and log probabilities of a chunk, in fp32.
  const uint64_t logits = LossChunkRows(config, batch) * config.vocabulary * sizeof(float);
  // In bf16, beside the logits' gradient, a slice of the output matrix's.
  const uint64_t slice_rows = std::min<uint64_t>(OutputSliceRows(config.hidden), config.vocabulary);
  const uint64_t slice = precision == Precision::kBf16
                             ? slice_rows * config.hidden * WeightBytes(precision) + logits / 2
                             : 0;
  const uint64_t forward = std::max(norm.forward, s.hidden + 2 * logits);
  const uint64_t backward =
      std::max(norm.forward, norm.kept + s.hidden + std::max({2 * logits, slice, norm.backward}));
  return {forward + s.small + s.forward_scratch, backward + s.small + s.forward_scratch};
}

}  // namespace

Workspace BlockWorkspace(const ModelConfig& config, const BatchShape& batch, Precision precision,
                         uint32_t threads, BlockKind kind, uint64_t parameters) {
  const Sizes s = MakeSizes(config, batch, precision, threads, parameters);
  switch (kind) {
    case BlockKind::kEmbedding:
      return {0, 0};  // loops over the caller's bytes
    case BlockKind::kLayer:
      return config.architecture == Architecture::kGpt2 ? Gpt2LayerWorkspace(s)
                                                        : LlamaLayerWorkspace(s);
    case BlockKind::kHead:
      break;
  }
  return HeadWorkspace(config, batch, precision, s);
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
