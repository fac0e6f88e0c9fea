// A matrix product as a load: what the compute library gives at best, so that a step's floating-
// point operations have a ceiling to be set beside.
//
// Square matrices of normal random numbers (a GPU draws less power, and so runs faster, on zeros),
// 2048 on a CPU and 8192 on a GPU: large enough that launches and caches are in no figure. The
// result is compared with sums in double before anything is timed: a wrong product has no speed.
//
// Owner: the caller. Thread rule: one thread. On a CPU: torch's threads (StartTorchRuntime).
#pragma once

#include <memory>
#include <optional>

#include "engine/model/model_shape.h"
#include "io/status.h"

namespace marea {

class MatmulLoad {
 public:
  // `gpu`: an index, as ProbeGpu counts; absent: the CPU. Takes 48 MiB (fp32 on the CPU) to 384 MiB
  // (bf16 on a GPU). DoesNotFit where they are not free; Failed from the library, or if the product
  // is wrong. REQUIRES: LoadTorchCuda for a GPU.
  static Result<std::unique_ptr<MatmulLoad>> Make(Precision precision, std::optional<int> gpu);
  ~MatmulLoad();

  // Multiplies, on a GPU several times back to back; blocks until the results are there.
  Status Run();
  // Of one Run: 2 n^3 for each product.
  double flop() const;

 private:
  struct State;
  explicit MatmulLoad(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace marea
