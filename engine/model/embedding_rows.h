// The loops of the embedding on the CPU, without torch: embedding.cc shares them out over threads,
// and the GPU's kernels (embedding_cuda.cu) must give their bits. Element is float or Bf16.
//
// Thread rule: pure functions; calls on disjoint rows (columns) may overlap.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/model/bf16.h"

namespace marea {

// Where a micro-batch's tokens lie: row i is position i % sequence_length of a sequence.
struct EmbedRows {
  const int32_t* tokens;
  int64_t count;
  int64_t sequence_length;
  int64_t hidden;
};

// output[i] = token_table[tokens[i]] (+ position_table[i % sequence_length], added in fp32 and
// rounded) for the rows from `begin` to `end`. `position_table` may be null.
template <typename Element>
void EmbedRowsForward(const EmbedRows& rows, int64_t begin, int64_t end, const Element* token_table,
                      const Element* position_table, Element* output) {
  for (int64_t i = begin; i < end; ++i) {
    const Element* row = token_table + rows.tokens[i] * rows.hidden;
    Element* out = output + i * rows.hidden;
    if (position_table == nullptr) {
      std::copy(row, row + rows.hidden, out);
      continue;
    }
    const Element* position = position_table + (i % rows.sequence_length) * rows.hidden;
    for (int64_t k = 0; k < rows.hidden; ++k) {
      out[k] = static_cast<Element>(static_cast<float>(row[k]) + static_cast<float>(position[k]));
    }
  }
}

// Adds the gradient's columns from `begin` to `end` to the sums, row after row: each sum keeps the
// order of the batch. Either sum may be null. Tokens equal to `padding` (-1: none) are skipped.
template <typename Element>
void EmbedRowsBackward(const EmbedRows& rows, int64_t padding, int64_t begin, int64_t end,
                       const Element* gradient, float* token_sums, float* position_sums) {
  for (int64_t i = 0; i < rows.count; ++i) {
    const Element* row = gradient + i * rows.hidden;
    if (token_sums != nullptr && rows.tokens[i] != padding) {
      float* sums = token_sums + rows.tokens[i] * rows.hidden;
      for (int64_t k = begin; k < end; ++k) sums[k] += static_cast<float>(row[k]);
    }
    if (position_sums != nullptr) {
      float* sums = position_sums + (i % rows.sequence_length) * rows.hidden;
      for (int64_t k = begin; k < end; ++k) sums[k] += static_cast<float>(row[k]);
    }
  }
}

}  // namespace marea
