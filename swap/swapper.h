// Runs the transfers of a step plan and checks at every op that what the plan assumes to be
// resident is.
//
// An OpRunner between the executor and engine: kRead, kWrite, kCopyIn and kCopyOut are run here
// (through ChunkIo and DeviceCopy), all other ops go on to engine's runner. For each access to a
// tracked shard (weights, master, moments, gradients, partials), in homes and in ring values alike,
// residency is asked before the op starts and told when it has ended: in a device lane when it is
// launched, since what may use its bytes from then on runs behind it on the device (Note [Device
// lanes] in executor.h). A ring value holds a Lease
// from the op that fills it until the last op of the turn that touches it has completed; ops that
// the turn's mask skips do not count. The swapper decides nothing.
//
// A disagreement between plan and residency, a failed transfer or a failed engine op completes that
// op with a Status (the first such completes inline, within Start). After a failure the swapper
// keeps completing what is in flight; the run is over.
//
// Owner: the trainer; it outlives the executor. Thread rule: Start from one thread at a time (the
// executor's); completions arrive from any thread; the other calls only while no op is in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/mutex.h"
#include "io/status.h"
#include "swap/access_map.h"
#include "swap/chunk_io.h"
#include "swap/chunk_table.h"
#include "swap/device_copy.h"
#include "swap/op_runner.h"
#include "swap/residency.h"
#include "swap/step_plan.h"

namespace marea {

// What the swapper works with. All outlive it. `chunk_io` may be null if no home is on NVMe.
struct SwapperParts {
  const StepPlan& plan;
  const ChunkTable& chunks;  // MakeChunkTable(plan)
  ChunkIo* chunk_io;
  DeviceCopy& device_copy;
  OpRunner& engine;
};

// How a run ended: with every op of every turn, or before that.
enum class RunEnd : uint8_t { kComplete, kCutShort };

class Swapper final : public OpRunner {
 public:
  // REQUIRES: every RAM ring that staging values of kRead/kWrite live in begins and ends on a page,
  // as does every value in it (a transfer moves whole pages). A plan that breaks this aborts.
  explicit Swapper(const SwapperParts& parts);
  ~Swapper() override;  // REQUIRES: no op in flight

  void Start(const OpCall& call, Completion done) override;

  // At the end of a run: Ok if no lease is held, nothing is in flight and no shard's newest bytes
  // are away from home; else a sentence naming the first shard. In a run that was cut short (an op
  // failed, or the executor was cancelled) leases that later ops would have given up are dropped
  // first.
  Status Shutdown(RunEnd end = RunEnd::kComplete);

  // Homes outside of a step (ShardAccess): what a shard is made of, and its state. Rows are in
  // order of first byte. Empty if the plan has no such shard; without what rests on another rank.
  std::vector<uint32_t> RowsOf(ShardKind kind, uint32_t group, uint32_t index = 0) const;
  const ShardChunk& chunk(uint32_t row) const { return map_.rows[row].id; }
  const HomePlace& home(uint32_t row) const { return map_.homes[row]; }
  Status BeginHomeRead(uint32_t row);
  void EndHomeRead(uint32_t row);
  Status BeginHomeWrite(uint32_t row);  // the whole row is written; what was there is not needed
  void EndHomeWrite(uint32_t row, bool ok);

  const SwapperParts& parts() const { return parts_; }

 private:
  // A row's bytes in one ring value.
  struct Copy {
    Lease lease;
    bool valid = false;     // filled or produced, and not being rewritten
    uint64_t turn = 0;      // which use of the value this is
    uint32_t ops_left = 0;  // active ops of `turn` that touch this copy and have not completed
  };

  // In flight on the device, and what residency said when it was launched.
  struct LaunchedOp {
    uint32_t op_index;
    uint64_t turn;
    Status ended;
  };

  Status Begin(const OpCall& call) REQUIRES_LOCK(mutex_);
  Status BeginTouch(const OpCall& call, const Touch& touch) REQUIRES_LOCK(mutex_);
  Status OpenCopy(const OpCall& call, uint32_t copy) REQUIRES_LOCK(mutex_);
  Status ExpectCopy(const OpCall& call, uint32_t copy) const REQUIRES_LOCK(mutex_);
  void EndTouch(const Touch& touch, bool ok) REQUIRES_LOCK(mutex_);
  Status End(const OpCall& call, bool ok) REQUIRES_LOCK(mutex_);
  void EndAtLaunch(const OpCall& call);
  void Finish(const OpCall& call, Status result, const Completion& done);
  void DropLeases() REQUIRES_LOCK(mutex_);
  void RunOp(const OpCall& call, Completion done);
  void CheckStaging() const;

  const SwapperParts parts_;
  const AccessMap map_;
  std::vector<uint32_t> op_chunk_;  // by op: chunk of its kRead/kWrite, kNone for other ops

  mutable Mutex mutex_;
  ResidencyTable residency_ GUARDED_BY(mutex_);
  std::vector<Copy> copies_ GUARDED_BY(mutex_);          // by Touch::copy
  std::vector<LaunchedOp> launched_ GUARDED_BY(mutex_);  // as many as device lanes run ahead
  uint64_t in_flight_ GUARDED_BY(mutex_) = 0;
  bool failed_ GUARDED_BY(mutex_) = false;
};

}  // namespace marea
