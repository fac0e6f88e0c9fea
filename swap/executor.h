// Runs a step plan, turn after turn.
//
// The executor is a passive scheduler: each lane issues its ops in order, as soon as their waits
// are met and fewer than `lane_depth` of them are in flight, and retires them in order. Issuing
// happens on whichever thread enqueues a turn or reports a completion; one thread at a time, and
// never recursively. The work itself runs in the runner's lanes. So the same code runs with real
// threads and, in tests, under a virtual clock on one thread.
//
// Note [Device lanes]: a GPU's streams take work in advance. A device lane therefore has three
// counters: issued (given to the runner), launched (in the stream's queue) and retired (complete).
// Between two device lanes a wait is met once the other lane has *launched* the op, and the runner
// makes the one stream wait for the other (an event); everywhere else it is met once the op has
// retired. An op is issued once the one before it in its lane is launched.
// An op that is skipped in a device lane waits until all that it waits for has retired: those that
// rely on its waits find nothing in its stream to wait behind. A stream runs one op at a time and
// in order, so for waits and checks the lane's depth is 1, however many ops are launched ahead
// (`launch_depth`).
//
// Its only inputs are the plan and each turn's mask. On the first failure nothing more is issued;
// what is in flight ends, and the failure is returned by WaitForTurn.
//
// Owner: the trainer. Thread rule: Enqueue and the Wait calls from one thread; completions from
// any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "io/mutex.h"
#include "io/status.h"
#include "swap/op_runner.h"
#include "swap/step_plan.h"

namespace marea {

// Seconds on any steady clock.
using ClockFunction = std::function<double()>;

// Told of every op as it is issued, as it begins and as it completes; of a skipped op only that it
// is issued, with `ran` false. An op begins as it is issued; in a device lane once it is the oldest
// in flight and all that it waits for has retired. Called under the executor's lock: must be quick
// and must not call back.
class ExecutorObserver {
 public:
  virtual ~ExecutorObserver() = default;
  virtual void OnIssue(uint32_t /*op_index*/, uint64_t /*turn*/, double /*seconds*/, bool /*ran*/) {
  }
  virtual void OnBegin(uint32_t /*op_index*/, uint64_t /*turn*/, double /*seconds*/) {}
  virtual void OnComplete(uint32_t /*op_index*/, uint64_t /*turn*/, double /*seconds*/) {}
};

// Where the compute lane's idle time went, by the lane at the root of the chain of waits, while a
// turn was enqueued.
using StallSeconds = std::array<double, kLaneCount>;

class Executor {
 public:
  // `bases[space]` is where a space's bytes begin in memory (null for kFile). `launch_depth[lane]`
  // makes the lane a device lane and says how many of its ops may be in flight. The plan, runner
  // and observers outlive the executor.
  struct Options {
    std::array<std::byte*, kSpaceCount> bases{};
    ClockFunction clock;  // needed by observers and for stalls
    std::vector<ExecutorObserver*> observers{};
    std::array<uint32_t, kLaneCount> launch_depth{};
  };
  Executor(const StepPlan& plan, OpRunner& runner, Options options);
  // REQUIRES: nothing is in flight (Drain has returned).
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Appends a turn; lanes may begin it at once. Returns its number, counted from 0. Never blocks.
  uint64_t Enqueue(const StepMask& mask);

  // Blocks until every op of the turn has retired, or the run has failed and nothing is in flight.
  Status WaitForTurn(uint64_t turn);
  // Blocks until nothing more will happen: all enqueued turns are done, or the run has failed.
  Status Drain();
  // Fails the run with `status`, as if an op had: lanes stop issuing.
  void Cancel(Status status);

  uint64_t turns_enqueued() const;
  uint64_t turns_retired() const;  // turns whose every op has retired
  bool failed() const;
  Status failure() const;  // the first; Ok while there is none
  StallSeconds stall_seconds() const;

 private:
  struct OpState {
    bool active;
    bool begun = false;
    bool launched = false;
    bool done = false;
  };
  // Counters are absolute positions: turn * ops in lane + position.
  struct LaneState {
    uint64_t issued = 0;
    uint64_t launched = 0;          // retired <= launched <= issued
    uint64_t retired = 0;           // issued <= retired + depth
    std::deque<OpState> in_flight;  // oldest first: the ops at retired..issued
  };
  enum class NewsKind : uint8_t { kLaunched, kDone };
  struct News {
    NewsKind kind;
    uint32_t op_index;
    uint64_t turn;
    Status status;
  };

  void Tell(News news);
  bool ClaimPump() REQUIRES_LOCK(inbox_mutex_);
  void Pump();  // REQUIRES: ClaimPump() said true
  bool IssueReady() REQUIRES_LOCK(mutex_);
  bool IssueNext(int lane) REQUIRES_LOCK(mutex_);
  bool IsDevice(int lane) const { return options_.launch_depth[lane] > 0; }
  uint32_t DepthOf(int lane) const {
    return IsDevice(lane) ? options_.launch_depth[lane] : plan_.lane_depth[lane];
  }
  const Op& OpAt(int lane, uint64_t absolute) const;
  // Has the other lane got far enough for an op that starts in `lane`, or is to run there now?
  bool Met(int lane, const Wait& wait, uint64_t turn) const REQUIRES_LOCK(mutex_);
  bool Retired(const Wait& wait, uint64_t turn) const REQUIRES_LOCK(mutex_);
  int UnmetLane(int lane) const REQUIRES_LOCK(mutex_);
  void Receive(const News& news) REQUIRES_LOCK(mutex_);
  OpState& Find(const News& news, int* lane) REQUIRES_LOCK(mutex_);
  void Advance(int lane) REQUIRES_LOCK(mutex_);
  void BeginHead(int lane) REQUIRES_LOCK(mutex_);
  void Begin(OpState& state, uint32_t op_index, uint64_t turn) REQUIRES_LOCK(mutex_);
  void AccountStall() REQUIRES_LOCK(mutex_);
  bool Busy(int lane) const REQUIRES_LOCK(mutex_);
  bool IdleForGood(int lane) const REQUIRES_LOCK(mutex_);
  int StallRoot() const REQUIRES_LOCK(mutex_);
  bool HasNext(int lane) const REQUIRES_LOCK(mutex_);
  uint64_t InFlight() const REQUIRES_LOCK(mutex_);
  uint64_t TurnsRetired() const REQUIRES_LOCK(mutex_);

  const StepPlan& plan_;
  OpRunner& runner_;
  const Options options_;
  std::vector<std::vector<std::span<std::byte>>> spans_;  // by op

  Mutex inbox_mutex_;  // taken after mutex_, never before
  std::vector<News> inbox_ GUARDED_BY(inbox_mutex_);
  bool pumping_ GUARDED_BY(inbox_mutex_) = false;
  bool pump_again_ GUARDED_BY(inbox_mutex_) = false;

  mutable Mutex mutex_;
  CondVar changed_;
  std::array<LaneState, kLaneCount> lanes_ GUARDED_BY(mutex_);
  std::deque<StepMask> masks_ GUARDED_BY(mutex_);  // of turns first_mask_turn_ and later
  uint64_t first_mask_turn_ GUARDED_BY(mutex_) = 0;
  uint64_t turns_ GUARDED_BY(mutex_) = 0;  // enqueued so far
  Status failure_ GUARDED_BY(mutex_) = Status::Ok();
  StallSeconds stall_seconds_ GUARDED_BY(mutex_){};
  int stall_root_ GUARDED_BY(mutex_) = -1;  // lane that the compute lane waits for; -1: none
  double stall_since_ GUARDED_BY(mutex_) = 0;
};

}  // namespace marea
