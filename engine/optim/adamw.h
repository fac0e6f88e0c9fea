// AdamW (and Adam with an L2 penalty) on the CPU, over one chunk of a parameter group.
//
// The arithmetic is that of torch.optim.AdamW's single-tensor form, in fp32:
//     g  = gradient * gradient_scale          (the clipping coefficient)
//     p *= 1 - lr * weight_decay              (decoupled; with an L2 penalty: g += weight_decay *
//     p) m += (g - m) * (1 - beta1) v  = v * beta2 + (1 - beta2) * g * g p -= (lr /
//     bias_correction1) * m / (sqrt(v) / sqrt(bias_correction2) + epsilon)
// and torch's results are met to rounding, not to the bit.
//
// Note [Same bits everywhere]: a weight's new bits depend on its old state, its gradient and the
// constants, and on nothing else: not on the SIMD level, the thread count, the chunk or the place
// in it. So the loss curve is the same wherever shards live. That is kept by four rules. Every
// operation is an IEEE one, correctly rounded: add, subtract, multiply, divide, square root, fused
// multiply-add; no approximations. What is fused is written so (std::fma where the target has no
// instruction), and the compiler contracts nothing by itself (-ffp-contract=off). What is left over
// after whole vectors runs through the same vector code, padded. Every NaN is stored as 0x7fc00000,
// because which payload and sign an operation hands on depends on the instruction chosen.
//
// Owner: the optimizer op. Thread rule: free functions; two calls on disjoint chunks may overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/optim/simd_level.h"

namespace marea {

class WorkerPool;

// torch.optim.AdamW's defaults.
struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  bool decoupled_weight_decay = true;  // AdamW; false: Adam, the decay is added to the gradient
  bool bias_correction = true;
};

// What one update needs, worked out in double and rounded once. Make it with MakeAdamWConstants.
struct AdamWConstants {
  float decay_factor;     // 1 - lr * weight_decay; 1 with an L2 penalty
  float l2_weight_decay;  // 0 with decoupled decay
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float inverse_sqrt_bias_correction2;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
  float step_size;  // lr / (1 - beta1^t)
};

// The constants of update `update_number`, counted from 0 as in LearningRate: the first update of a
// run is number 0 and corrects with t = 1.
AdamWConstants MakeAdamWConstants(const AdamWConfig& config, double learning_rate,
                                  uint64_t update_number);

// One range of elements in all the shards that an update touches. Arrays are of `elements` values,
// do not overlap, and are aligned to their own type (any multiple of 64 elements of a group is).
struct AdamWChunk {
  // The weight, updated in place: either the split master (bf16 and master_low), or fp32 alone.
  uint16_t* weight_bf16 = nullptr;
  uint16_t* master_low = nullptr;
  float* weight_fp32 = nullptr;

  float* moment1 = nullptr;  // updated in place
  float* moment2 = nullptr;

  // The held gradient, read only: one of the two.
  const uint16_t* gradient_bf16 = nullptr;
  const float* gradient_fp32 = nullptr;
  float gradient_scale = 1.0f;  // what the gradient is multiplied with; 1 changes nothing

  size_t elements = 0;
};

// Updates `chunk` in place on the threads of `pool`; blocks until it is done. Cannot fail.
// REQUIRES: exactly one form of the weight and one of the gradient is given; `level` is one of
// AvailableSimdLevels(); not called from a thread of `pool`.
void RunAdamW(WorkerPool& pool, const AdamWChunk& chunk, const AdamWConstants& constants,
              SimdLevel level);

}  // namespace marea
