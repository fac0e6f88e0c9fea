// How the executor starts an op, and how the op reports back.
//
// Owner: the executor owns the call; a runner (the swapper for transfers, engine for compute,
// optimizer and collectives) implements `Start`. Thread rule: Start is called by one thread at a
// time and must not block; it hands the op to a lane of its own. `Completion` may be called from
// any thread, once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "io/status.h"
#include "swap/step_plan.h"

namespace marea {

// What an op may touch: span i is the bytes of op.accesses[i], and nothing else. For a kFile access
// the span is empty (the bytes are on a drive).
struct OpCall {
  const StepPlan* plan;
  uint32_t op_index;
  uint64_t turn;
  StepMask mask;
  std::span<const std::span<std::byte>> spans;  // valid until the completion is called

  const Op& op() const { return plan->ops[op_index]; }
};

// Says that an op's bytes are final (Ok) or why they are not. Exactly one call; a second, or none
// before destruction of the executor, is a programmer error.
using Completion = std::function<void(Status)>;

class OpRunner {
 public:
  virtual ~OpRunner() = default;
  virtual void Start(const OpCall& call, Completion done) = 0;
};

}  // namespace marea
