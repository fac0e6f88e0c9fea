// The shape of a model, without torch: what the plan, the budgets and the initialiser need.
//
// A model is an ordered list of blocks (embedding, layers, head). Each block uses parameter groups;
// a group holds tensors, flattened in a fixed order, each starting on kTensorAlignBytes so that
// kernels see the same alignment wherever the group rests. Sizes here are in elements unless the
// name says bytes. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "io/status.h"

namespace marea {

inline constexpr uint64_t kTensorAlignBytes = 256;
// In elements of the narrowest kind (2 bytes), so that one layout serves every kind.
inline constexpr uint64_t kTensorAlignElements = kTensorAlignBytes / 2;
// Groups are padded to whole pages in every kind: 2048 elements are 4 KiB of bf16.
inline constexpr uint64_t kGroupAlignElements = 2048;

enum class InitKind : uint8_t { kNormal, kZeros, kOnes };

struct TensorShape {
  std::string name;  // Hugging Face's name, "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> dims;
  uint64_t elements;
  uint64_t first_element;  // within its group
  InitKind init = InitKind::kNormal;
  double init_std = 0.02;  // kNormal
  int64_t zero_row = -1;   // kNormal: this row starts as zeros (a padding token's embedding)
};

struct GroupShape {
  std::string name;  // "embed", "layers.0", "norm"
  std::vector<TensorShape> tensors;
  uint64_t elements;    // padded to kGroupAlignElements
  uint64_t parameters;  // without padding
  bool frozen = false;
};

enum class BlockKind : uint8_t { kEmbedding, kLayer, kHead };

// Byte counts are for one micro-batch. Workspace is the peak of temporaries that the compute
// library allocates while the op runs, beyond what the plan places.
struct BlockShape {
  std::string name;
  BlockKind kind;
  uint32_t layer = 0;            // kLayer: which one
  std::vector<uint32_t> groups;  // into ModelShape::groups, in the order the block's code expects
  uint64_t input_bytes = 0;      // the activation this block reads; 0 for the embedding
  uint64_t output_bytes = 0;     // the activation this block writes; 0 for the head
  uint64_t forward_workspace_bytes = 0;
  uint64_t backward_workspace_bytes = 0;
  double forward_flops = 0;     // one micro-batch, forward only
  double recomputed_flops = 0;  // of these, what backward computes (the head: all, once)
};

// Does torch have a fast product of bf16 matrices on this CPU? Without AVX-512 it has a loop that
// is fifty times slower than its product in fp32.
bool CpuMultipliesBf16();

// What computes. Temporaries and the size of loss chunks depend on it.
struct ComputeTarget {
  // This CPU with so many threads (>= 1): what TorchRuntimeOptions will say.
  ComputeTarget(uint32_t cpu_threads)  // NOLINT: implicit
      : threads(cpu_threads), widens_bf16(!CpuMultipliesBf16()) {}
  static ComputeTarget Gpu(uint32_t sm_count) {
    ComputeTarget target(1);
    target.gpu = true;
    target.widens_bf16 = false;
    target.sm_count = sm_count;
    return target;
  }

  uint32_t threads;
  // bf16 weights and activations are widened as a block begins, which then computes in fp32; what
  // leaves it is rounded.
  bool widens_bf16;
  bool gpu = false;
  uint32_t sm_count = 0;  // multiprocessors, on a GPU
};

struct ModelShape {
  ModelConfig config;
  std::vector<GroupShape> groups;
  std::vector<BlockShape> blocks;    // embedding first, head last
  uint64_t parameters = 0;           // tied weights counted once
  uint64_t compute_fixed_bytes = 0;  // what BlockCompute keeps for the whole run
  ComputeTarget target = 1;
};

// What a micro-batch looks like.
struct BatchShape {
  uint32_t sequences;  // micro-batch size
  uint32_t sequence_length;
};

enum class Precision : uint8_t { kFp32, kBf16 };
constexpr uint64_t WeightBytes(Precision precision) {
  return precision == Precision::kBf16 ? 2 : 4;
}

// Rows (tokens) of a micro-batch whose logits the head computes at once: at most about
// kLossChunkBytes of fp32 logits (on a GPU kGpuLossChunkBytes), so that the full logits never
// exist. A GPU needs more rows at once to be busy.
inline constexpr uint64_t kLossChunkBytes = uint64_t{32} << 20;
inline constexpr uint64_t kGpuLossChunkBytes = uint64_t{512} << 20;
uint64_t LossChunkRows(const ModelConfig& config, const BatchShape& batch,
                       const ComputeTarget& target = 1);

// In bf16 the output matrix's gradient exists only in slices of this many rows before it is added
// to the fp32 sum.
inline constexpr uint64_t kOutputSliceBytes = uint64_t{8} << 20;
constexpr uint64_t OutputSliceRows(uint64_t hidden) {
  const uint64_t rows = kOutputSliceBytes / (2 * hidden);
  return rows == 0 ? 1 : rows;
}

// REQUIRES: `config` came from ParseModelConfig (so it is consistent); the batch is not empty, and
// its sequence_length is at most max_positions (CheckBatchShape).
// Groups start trainable: set GroupShape::frozen afterwards; byte counts remain upper bounds.
ModelShape MakeModelShape(const ModelConfig& config, const BatchShape& batch, Precision precision,
                          const ComputeTarget& target);

// InvalidArgument, naming `--sequence-length` or the micro-batch, for a batch that the model cannot
// take: empty, longer than max_positions, or too large to index.
Status CheckBatchShape(const ModelConfig& config, const BatchShape& batch);

}  // namespace marea
