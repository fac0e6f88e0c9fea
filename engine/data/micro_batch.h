// One micro-batch as the model reads it: three row-major arrays [sequences, sequence_length].
//
// Owner: whoever filled the arrays (see BatchSource); this struct only points. A row whose weights
// are all zero is padding: its tokens and labels are valid ids, and it adds nothing to loss or
// gradients. Plain values.
#pragma once

#include <cstdint>

namespace marea {

struct MicroBatch {
  const int32_t* tokens;  // inputs
  const int32_t* labels;  // labels[i] is the token that follows tokens[i]
  const float* weights;   // weight of each label in the step's mean loss
};

}  // namespace marea
