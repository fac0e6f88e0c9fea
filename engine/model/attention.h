// Attention and rotary position embedding, shared by the architectures.
//
// Thread rule: pure functions on tensors; RopeTable is immutable once built.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/model/model_config.h"

namespace marea {

// Causal scaled-dot-product attention. query [sequences, heads, length, head_dim]; key and value
// [sequences, kv_heads, length, head_dim], each shared by heads / kv_heads query heads. Returns
// [sequences, length, heads * head_dim].
at::Tensor CausalAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

// Cosine and sine of every (position, pair) of a head, [length, head_dim]: angles in fp32, rounded
// to the compute type at the end, as Transformers has it.
struct RopeTable {
  at::Tensor cosine;
  at::Tensor sine;
};

// Source of the llama3 scaling: Llama 3.1's model code (Meta), as in Transformers' rope utilities.
RopeTable MakeRopeTable(const ModelConfig& config, int64_t length, at::ScalarType type,
                        const c10::Device& device);

// Rotates x [sequences, heads, length, head_dim]: pairs are (i, i + head_dim / 2).
at::Tensor ApplyRope(const at::Tensor& x, const RopeTable& table);

}  // namespace marea
