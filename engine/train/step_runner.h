// Runs the ops that need arithmetic: compute, optimizer, clipping. The swapper forwards them here.
//
// Compute and, with several ranks, their collectives run on the device's lanes; the optimizer has a
// lane of its own, a thread which spreads its work over a pool. What a turn works on (data,
// learning rate) is given by turn before it is enqueued.
//
// Owner: the trainer; outlives the executor. Thread rule: Start from the executor; the other calls
// from the trainer's thread.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/data/batch_source.h"
#include "engine/model/block_compute.h"
#include "engine/optim/adamw.h"
#include "engine/optim/worker_pool.h"
#include "engine/plan/plan_spec.h"
#include "io/mutex.h"
#include "swap/device.h"
#include "swap/lane_thread.h"
#include "swap/op_runner.h"

namespace marea {

// What one turn works on.
struct TurnInputs {
  const BatchSource* batches = nullptr;  // null in a turn that neither trains nor evaluates
  uint64_t batch_step = 0;               // which step of `batches`
  AdamWConstants update{};               // in a turn that updates
};

// What a turn that trained or evaluated found.
struct TurnOutcome {
  uint64_t turn = 0;
  double loss = 0;       // weighted mean; 0 if every weight of the step is 0
  double grad_norm = 0;  // training only
  bool stop = false;     // some rank was asked to stop before its clip op: all learn it together
};

struct StepRunnerOptions {
  const PlanSpec* spec = nullptr;
  Device* device = nullptr;  // outlives the runner
  std::optional<int> gpu;    // none: compute on the CPU
  BatchShape batch{};
  double gradient_clipping = 0;  // 0: off
  uint32_t optimizer_threads = 1;
  SimdLevel simd_level = SimdLevel::kScalar;
  // With several ranks: for the comm lane, and for the sums of losses and norms. Outlive the
  // runner.
  Collectives* comm = nullptr;
  Communicator* sums = nullptr;
  const std::atomic<bool>* stop = nullptr;  // this rank was asked to stop; outlives the runner
};

class StepRunner final : public OpRunner {
 public:
  static Result<std::unique_ptr<StepRunner>> Create(const StepRunnerOptions& options);
  ~StepRunner() override;

  // Before the turn is enqueued; turns in order.
  void SetTurn(uint64_t turn, const TurnInputs& inputs);

  void Start(const OpCall& call, Completion done) override;

  // The outcome of the next turn that trained or evaluated, in order. Blocks until it is there or
  // `give_up` says that it never will be; then an outcome of turn UINT64_MAX.
  TurnOutcome WaitForOutcome(const std::function<bool()>& give_up);
  // Blocks until the head of this turn has been computed (its last micro-batch), or give_up.
  void WaitForHead(uint64_t turn, const std::function<bool()>& give_up);

  // Ends the threads. REQUIRES: no op in flight.
  void Shutdown();

 private:
  explicit StepRunner(const StepRunnerOptions& options);

  TurnInputs InputsOf(uint64_t turn);
  Status Compute(const OpCall& call);
  void EnterCompute();
  Status RunForward(const OpCall& call);
  Status RunBackward(const OpCall& call);
  Status RunHead(const OpCall& call);
  Status RunReduce(const OpCall& call);
  Status Optimize(const OpCall& call);
  AdamWChunk ChunkOf(const OpCall& call) const;
  Status RunUpdateOnGpu(const OpCall& call);
  void RunUpdate(const OpCall& call);
  // What the ranks have to add up, and the sum over them, in the order of their ranks.
  struct Sums {
    double loss = 0;
    double square = 0;  // of gradients
    double stop = 0;    // how many ranks were asked to
  };
  Result<Sums> AddOverRanks(const Sums& own);
  Status RunClip(const OpCall& call);
  Status Communicate(const OpCall& call);
  Completion UnlessFailed(Completion done) const;
  MicroBatch FillMicroBatch(const OpCall& call);

  const StepRunnerOptions options_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<BlockCompute> blocks_;  // compute thread only

  // The step's tokens, by micro-batch; filled by the embedding's forward, on the compute thread.
  struct TokenRows {
    std::vector<int32_t> tokens, labels;
    std::vector<float> weights;
  };
  std::vector<TokenRows> rows_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<uint64_t, TurnInputs>> inputs_ GUARDED_BY(mutex_);
  std::deque<TurnOutcome> outcomes_ GUARDED_BY(mutex_);
  uint64_t heads_done_ GUARDED_BY(mutex_) = 0;  // turns whose head has been computed, plus one

  bool entered_ = false;  // compute thread only
  std::unique_ptr<LaneThread> optimizer_;
};

}  // namespace marea
