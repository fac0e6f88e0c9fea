// How much memory the compute library takes while a block runs, and how much work a block is, by
// formula: what the plan must know before anything runs.
//
// The formulas follow the code of gpt2_layer.cc, llama_layer.cc, embedding.cc and loss.cc statement
// by statement and change with it; a test holds them to the peak that torch's allocator counts.
// Pure functions.
#pragma once

#include <cstdint>

#include "engine/model/model_shape.h"

namespace marea {

// Peak bytes of temporaries, for one micro-batch. For the head `forward` is evaluation and
// `backward` is forward and backward together.
struct Workspace {
  uint64_t forward_bytes;
  uint64_t backward_bytes;
};

// The compute library's threads have scratch of their own. `parameters`: of the block's groups
// (torch hands over a layer's gradients all at once).
Workspace BlockWorkspace(const ModelConfig& config, const BatchShape& batch, Precision precision,
                         const ComputeTarget& target, BlockKind kind, uint64_t parameters);

// Multiply-adds count as two. Attention counts half of the score matrix, since it is causal.
double BlockForwardFlops(const ModelConfig& config, const BatchShape& batch, BlockKind kind);

// Of these, what backward computes: a layer's but for its last product (AddLastProduct).
double BlockRecomputedFlops(const ModelConfig& config, const BatchShape& batch, BlockKind kind);

// RoPE's cosines and sines; on a GPU what cuBLAS keeps.
uint64_t ComputeFixedBytes(const ModelConfig& config, const BatchShape& batch, Precision precision,
                           const ComputeTarget& target);

}  // namespace marea
