// What each step trains on: a pure function of (options, step).
//
// Step s of a pass covers positions [s*B, (s+1)*B) of that pass's permutation, B = G * W * micro.
// Sample j of the step's global batch is j = (g*W + r)*micro + m: accumulation round g, rank r, row
// m. Flush rule: a pass has ceil(samples / B) steps; its last step has as many rounds as its
// samples need, and the rows that remain in the last round are padding of weight 0. So shapes stay
// fixed, every sample of a pass counts exactly once, and nothing is carried into the next pass.
//
// Owner: the trainer; borrows the Dataset, which must outlive it. Thread rule: const calls from any
// thread.
#pragma once

#include <cstdint>
#include <span>

#include "engine/data/dataset.h"

namespace marea {

enum class SampleOrder : uint8_t { kShuffled, kSequential };  // kSequential: evaluation

struct BatchOptions {
  uint32_t micro_batch;         // rows of a micro-batch
  uint32_t accumulation_steps;  // micro-batches a step (G)
  uint32_t world_size = 1;
  uint32_t rank = 0;
  uint64_t seed = 0;
  SampleOrder order = SampleOrder::kShuffled;
};

struct StepBatch {
  uint64_t pass;
  uint64_t first_position;  // within the pass
  uint64_t samples;         // of all ranks, without padding
  uint32_t micro_count;     // rounds; the same on every rank, 1 to G
  uint64_t tokens;          // labels of weight 1, all ranks together
  double token_weight;      // the divisor of the step's mean loss, all ranks together
};

class BatchSource {
 public:
  // REQUIRES: micro_batch, accumulation_steps and world_size are positive, rank < world_size.
  BatchSource(const Dataset& dataset, const BatchOptions& options);

  uint64_t steps_per_pass() const { return steps_per_pass_; }
  uint64_t samples_per_step() const { return samples_per_step_; }  // a full step, all ranks

  // `step` counts from 0 through all passes.
  StepBatch Step(uint64_t step) const;

  // Fills micro-batch `micro` of `step` for this rank: micro_batch * sequence_length values each,
  // row-major. REQUIRES: micro < Step(step).micro_count and spans of that size. Blocks on page
  // faults only.
  void Fill(uint64_t step, uint32_t micro, std::span<int32_t> tokens, std::span<int32_t> labels,
            std::span<float> weights) const;

 private:
  const Dataset& dataset_;
  BatchOptions options_;
  uint64_t samples_per_step_;
  uint64_t steps_per_pass_;
};

}  // namespace marea
