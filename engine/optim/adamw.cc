#include "engine/optim/adamw.h"

#include <cmath>

#include "engine/optim/optim_kernels.h"
#include "engine/optim/worker_pool.h"
#include "io/check.h"

namespace marea {
namespace {

// About 430 KB of the split master's shards: long enough to hide the hand-over to a thread, short
// enough that the last pieces of a chunk end together.
constexpr size_t kPieceElements = 16384;

}  // namespace

AdamWConstants MakeAdamWConstants(const AdamWConfig& config, double learning_rate,
                                  uint64_t update_number) {
  double correction1 = 1.0;
  double correction2 = 1.0;
  if (config.bias_correction) {
    const double t = static_cast<double>(update_number) + 1.0;
    correction1 = 1.0 - std::pow(config.beta1, t);
    correction2 = 1.0 - std::pow(config.beta2, t);
  }
  AdamWConstants constants;
  constants.decay_factor = config.decoupled_weight_decay
                               ? static_cast<float>(1.0 - learning_rate * config.weight_decay)
                               : 1.0f;
  constants.l2_weight_decay =
      config.decoupled_weight_decay ? 0.0f : static_cast<float>(config.weight_decay);
  constants.one_minus_beta1 = static_cast<float>(1.0 - config.beta1);
  constants.beta2 = static_cast<float>(config.beta2);
  constants.one_minus_beta2 = static_cast<float>(1.0 - config.beta2);
  constants.inverse_sqrt_bias_correction2 = static_cast<float>(1.0 / std::sqrt(correction2));
  constants.epsilon = static_cast<float>(config.epsilon);
  constants.step_size = static_cast<float>(learning_rate / correction1);
  return constants;
}

void RunAdamW(WorkerPool& pool, const AdamWChunk& chunk, const AdamWConstants& constants,
              SimdLevel level) {
  MAREA_CHECK((chunk.weight_bf16 != nullptr) != (chunk.weight_fp32 != nullptr),
              "AdamW takes one form of the weight");
  MAREA_CHECK((chunk.weight_bf16 != nullptr) == (chunk.master_low != nullptr),
              "a bf16 weight and master_low belong together");
  MAREA_CHECK((chunk.gradient_bf16 != nullptr) != (chunk.gradient_fp32 != nullptr),
              "AdamW takes one form of the gradient");
  MAREA_CHECK(chunk.moment1 != nullptr && chunk.moment2 != nullptr, "AdamW needs both moments");
  const optim_internal::OptimKernels& kernels = optim_internal::KernelsFor(level);
  pool.ParallelFor(0, chunk.elements, kPieceElements, [&](size_t first, size_t last) {
    kernels.adamw(chunk, constants, first, last);
  });
}

}  // namespace marea
