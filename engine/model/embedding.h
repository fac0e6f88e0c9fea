// The embedding block: token embeddings, plus position embeddings where the model has them.
//
// Thread rule: pure functions; they use torch's thread pool.
#pragma once

#include "engine/model/block_compute.h"
#include "engine/model/model_shape.h"

namespace marea {

// InvalidArgument unless every token is in [0, vocabulary): the sentence gives the token's place.
Status CheckTokens(const ModelConfig& config, const BatchShape& batch, const int32_t* tokens);

// output = wte[token] (+ wpe[position]). REQUIRES: CheckTokens.
void EmbedForward(const ModelShape& model, const BatchShape& batch, Precision precision,
                  const int32_t* tokens, ByteSpans weights, ByteSpan output);

// Adds every position's gradient to its token's row (and its position's row), in fp32 and in the
// order of the batch, whatever the number of threads. A null accumulator is a frozen group's.
// ATen's own bf16 embedding gradient on the CPU is not used: it sums in bf16, 1.7% off.
void EmbedBackward(const ModelShape& model, const BatchShape& batch, Precision precision,
                   const int32_t* tokens, ByteSpan gradient, float* token_accumulator,
                   float* position_accumulator, Accumulate accumulate);

}  // namespace marea
