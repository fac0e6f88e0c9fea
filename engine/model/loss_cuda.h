// Cross-entropy of a chunk of logits on the GPU, forward and gradient in one kernel. The twin of
// what loss.cc does with a chunk, to rounding; with itself it agrees to the bit from run to run.
// Only in builds with MAREA_CUDA.
//
// Arithmetic: logits widened to fp32, maximum and sum of exponentials in fp32 (a thread's share in
// one pass, rescaled where its maximum grows: Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018), the loss from them in double. The order of the sums depends on
// the vocabulary and the row's number within the chunk, and on nothing else.
//
// Every pointer is memory that the device can reach. Thread rule: free functions; they only
// enqueue.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/model/accumulate.h"
#include "engine/model/model_shape.h"
#include "io/status.h"

namespace marea {

struct LogitsChunk {
  void* logits;  // [rows, vocabulary] in `precision`, contiguous, aligned to 16 bytes
  Precision precision;
  uint32_t rows;
  uint32_t vocabulary;
  const int32_t* labels;  // [rows]; any value where the weight is 0
  const float* weights;   // [rows]
  double* row_losses;     // [rows], written
};

// Enqueues row_losses[r] = weight * cross-entropy of row r; exactly 0 where the weight is 0,
// whatever the logits. Errors: those of CudaStatus for the launch.
// REQUIRES: labels with weight in [0, vocabulary), weights finite and not negative
// (MakeLossTargets); at least one row.
Status CrossEntropyOnGpu(const LogitsChunk& chunk, cudaStream_t stream);

// The same, and replaces the logits by the gradient of scale * sum(row_losses):
// (softmax - onehot) * weight * scale, rounded to nearest even; 0 where the weight is 0.
Status CrossEntropyGradientsOnGpu(const LogitsChunk& chunk, double scale, cudaStream_t stream);

// Enqueues *total = (kFirst) or += (kAdd) the row losses, one after another in double.
Status AddRowLossesOnGpu(const double* row_losses, uint64_t rows, double* total, Accumulate mode,
                         cudaStream_t stream);

}  // namespace marea
