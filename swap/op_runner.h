// How the executor starts an op, and how the op reports back.
//
// Owner: the executor owns the call; a runner (the swapper for transfers, engine for compute,
// optimizer and collectives) implements `Start`. Thread rule: Start is called by one thread at a
// time and must not block; it hands the op to a lane of its own. A `Completion` may be called from
// any thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

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

// How an op reports back. Copyable.
class Completion {
 public:
  Completion() = default;
  template <typename Done>
  requires std::invocable<Done&, Status> &&(!std::same_as<std::decay_t<Done>, Completion>)
      Completion(Done done)  // NOLINT(google-explicit-constructor): a lambda is a completion
      : done_(std::move(done)) {}
  Completion(std::function<void(Status)> done, std::function<void()> launched)
      : done_(std::move(done)), launched_(std::move(launched)) {}

  // The op's bytes are final (Ok), or why they are not. Exactly one call; a second, or none before
  // destruction of the executor, is a programmer error.
  void operator()(Status status) const { done_(std::move(status)); }

  // Device lanes only, before the call above and at most once: the op is in its lane's device
  // queue, and whatever the device runs behind it will find its bytes. See Executor.
  void Launched() const {
    if (launched_) launched_();
  }

 private:
  std::function<void(Status)> done_;
  std::function<void()> launched_;
};

class OpRunner {
 public:
  virtual ~OpRunner() = default;
  virtual void Start(const OpCall& call, Completion done) = 0;
};

}  // namespace marea
