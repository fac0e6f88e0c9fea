#include "engine/model/workspace.h"

#include <algorithm>

#include "io/units.h"

namespace marea {
namespace {

// Statistics of norms, gradients of biases and other tensors too small to name.
constexpr uint64_t kSmallBytes = 256 * kKiB;
// On a GPU: tokens and labels, partial sums of norms, and the caching allocator's rounding.
constexpr uint64_t kGpuSmallBytes = 24 * kMiB;
// cuBLAS and cuBLASLt keep workspaces (32 MiB each on Hopper) for the thread that computes and for
// autograd's.
constexpr uint64_t kGpuBlasBytes = 136 * kMiB;

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
  uint64_t attention_scratch;  // of forward
  uint64_t attention_back_scratch;
  uint64_t forward_scratch;  // of matrix products
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

// FlashAttention's backward sums the query's gradient in fp32, once for each split of the keys: as
// many as keep all multiprocessors busy where it has to be deterministic. With grouped heads the
// gradients of key and value exist for every query head first. In fp32 the library has another
// kernel, which wants key and value repeated for every query head.
uint64_t GpuAttentionScratch(const ModelConfig& config, const BatchShape& batch,
                             Precision precision, const ComputeTarget& target) {
  const uint64_t tokens = uint64_t{batch.sequences} * batch.sequence_length;
  const uint64_t elements = tokens * config.heads * config.head_dim;
  const uint64_t grids = uint64_t{batch.sequences} * config.heads;
  const uint64_t splits =
      precision == Precision::kBf16 ? DivideRoundUp(std::max(1u, target.sm_count), grids) : 1;
  const bool grouped = config.heads != config.kv_heads;
  const uint64_t repeated = grouped ? (precision == Precision::kBf16 ? 2 : 4) : 0;
  return elements * (splits * sizeof(float) + repeated * WeightBytes(precision));
}

Sizes MakeSizes(const ModelConfig& config, const BatchShape& batch, Precision precision,
                const ComputeTarget& target, uint64_t parameters) {
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
  if (target.gpu) {
    s.small += kGpuSmallBytes;
    s.attention_scratch = 0;
    s.attention_back_scratch = GpuAttentionScratch(config, batch, precision, target);
    s.forward_scratch = s.backward_scratch = 0;
    return s;
  }
  s.attention_scratch = AttentionScratch(config, batch, precision, target.threads);
  s.attention_back_scratch = 2 * s.attention_scratch;  // the gradients of its tiles as well
  s.backward_scratch = MatmulScratch(config, batch, precision, target.threads);
  // Inner dimensions of forward are those of the model, and seldom worth a split.
  s.forward_scratch = std::min<uint64_t>(s.backward_scratch, target.threads * 192 * kKiB);
  return s;
}

Workspace Gpt2LayerWorkspace(const Sizes& s) {
  // ln_1, qkv, attended, projected, sum; then middle, ln_2 and the two sides of gelu.
  const uint64_t attention = 7 * s.hidden + s.attention_scratch;
  const uint64_t feed_forward = 2 * s.hidden + std::max(2 * s.inner, s.inner + 2 * s.hidden);
  // Kept for backward: ln_1, qkv (3), attended, middle, ln_2, both sides of gelu. On top come the
  // gradient of gelu's output and of the matrix behind it.
  const uint64_t down_back = 7 * s.hidden + 3 * s.inner + s.down;
  // ln_1, qkv, attended, the gradients of middle, attended, projected and of qkv's parts.
  const uint64_t attention_back = 11 * s.hidden + s.gradients + s.attention_back_scratch;
  // The input's gradient and all parameters' are handed over together.
  const uint64_t end = 3 * s.hidden + s.gradients;
  return {std::max(attention, feed_forward) + s.small + s.forward_scratch,
          std::max({down_back, attention_back, end}) + s.small + s.backward_scratch};
}

// What RmsNorm holds at its peak; what its graph keeps; and what its backward adds at its peak.
struct NormSizes {
  uint64_t forward;
  uint64_t kept;
  uint64_t backward;
};
NormSizes RmsNormSizes(const Sizes& s, const ComputeTarget& target) {
  if (target.gpu) return {s.hidden, s.hidden, s.hidden};  // one kernel each way
  const bool rounds = s.hidden != s.hidden_fp32;
  // x in fp32 (its own tensor in bf16 only), x * scale and its rounded form, the result.
  const uint64_t wide = rounds ? s.hidden_fp32 : 0;
  return {2 * s.hidden + 2 * wide, 2 * s.hidden + wide, s.hidden + 4 * s.hidden_fp32};
}

Workspace LlamaLayerWorkspace(const Sizes& s, const ComputeTarget& target) {
  const NormSizes norm = RmsNormSizes(s, target);
  // What RoPE holds for query, and for key beside the turned query: five tensors, or both sides of
  // the GPU's kernel.
  const uint64_t turn = target.gpu ? 2 : 5;
  // The norm's result and RoPE's tensors; then attention on query, key and value.
  const uint64_t attention =
      s.hidden + std::max({turn * s.query, s.query + turn * s.key,
                           2 * s.query + 2 * s.key + s.hidden + s.attention_scratch});
  // middle, the norm's result, gate, up and their product, the result.
  const uint64_t feed_forward = 3 * s.hidden + 3 * s.inner;
  const uint64_t forward = std::max({s.hidden + norm.forward, attention, feed_forward});

  // Kept for backward: both norms, query, key, value, attended and middle; gate, silu (not on a
  // GPU), up.
  const uint64_t kept = 2 * norm.kept + 2 * s.query + 2 * s.key;
  const uint64_t gates = (target.gpu ? 2 : 3) * s.inner;
  // The gradients of the product, of gate or silu, and of up; the last matrix's.
  const uint64_t down_back = kept + s.hidden + gates + 3 * s.inner + s.down;
  const uint64_t norm_back = kept + norm.backward + s.gradients;
  const uint64_t attention_back =
      norm.kept + s.hidden + 5 * s.query + 4 * s.key + s.attention_back_scratch + s.gradients;
  const uint64_t rope_back =
      norm.kept + 2 * s.hidden + (turn + 1) * s.query + 3 * s.key + s.gradients;
  return {
      forward + s.small + s.forward_scratch,
      std::max({down_back, norm_back, attention_back, rope_back}) + s.small + s.backward_scratch};
}

Workspace HeadWorkspace(const ModelConfig& config, const BatchShape& batch, Precision precision,
                        const ComputeTarget& target, const Sizes& s) {
  const bool rms = config.architecture == Architecture::kLlama;
  const NormSizes norm = rms ? RmsNormSizes(s, target) : NormSizes{s.hidden, s.hidden, s.hidden};
  if (target.gpu) {
    // Logits in the compute type; their gradient replaces them.
    const uint64_t chunk =
        LossChunkRows(config, batch, target) * config.vocabulary * WeightBytes(precision);
    const uint64_t forward = norm.forward + chunk + s.small;
    return {forward, 2 * s.hidden + std::max(chunk, 2 * s.hidden) + s.small};
  }
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
                         const ComputeTarget& target, BlockKind kind, uint64_t parameters) {
  if (precision == Precision::kBf16 && target.widens_bf16 && kind != BlockKind::kEmbedding) {
    // As in fp32, with copies of the weights, of the input and of the output's gradient.
    const Workspace wide =
        BlockWorkspace(config, batch, Precision::kFp32, target, kind, parameters);
    const uint64_t tokens = uint64_t{batch.sequences} * batch.sequence_length;
    const uint64_t hidden = tokens * config.hidden * sizeof(float);
    const uint64_t weights = parameters * sizeof(float);
    return {wide.forward_bytes + weights + hidden, wide.backward_bytes + weights + 2 * hidden};
  }
  const Sizes s = MakeSizes(config, batch, precision, target, parameters);
  switch (kind) {
    case BlockKind::kEmbedding:
      // Loops over the caller's bytes; on a GPU the tokens are brought there.
      return target.gpu ? Workspace{s.small, s.small} : Workspace{0, 0};
    case BlockKind::kLayer:
      return config.architecture == Architecture::kGpt2 ? Gpt2LayerWorkspace(s)
                                                        : LlamaLayerWorkspace(s, target);
    case BlockKind::kHead:
      break;
  }
  return HeadWorkspace(config, batch, precision, target, s);
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

double BlockRecomputedFlops(const ModelConfig& config, const BatchShape& batch, BlockKind kind) {
  const double forward = BlockForwardFlops(config, batch, kind);
  if (kind != BlockKind::kLayer) return forward;
  const double tokens = double{1} * batch.sequences * batch.sequence_length;
  return forward - 2 * tokens * config.hidden * config.intermediate;
}

uint64_t ComputeFixedBytes(const ModelConfig& config, const BatchShape& batch, Precision precision,
                           const ComputeTarget& target) {
  uint64_t bytes = target.gpu ? kGpuBlasBytes : 0;
  if (config.architecture == Architecture::kLlama) {
    const Precision type = target.widens_bf16 ? Precision::kFp32 : precision;
    bytes += uint64_t{2} * batch.sequence_length * config.head_dim * WeightBytes(type);
  }
  return bytes;
}

}  // namespace marea
