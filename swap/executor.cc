#include "swap/executor.h"

#include <algorithm>
#include <utility>

namespace marea {

Executor::Executor(const StepPlan& plan, OpRunner& runner, Options options)
    : plan_(plan), runner_(runner), options_(std::move(options)), spans_(plan.ops.size()) {
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    for (const Access& access : plan.ops[i].accesses) {
      const Buffer& buffer = plan.buffers[access.buffer];
      std::byte* base = options_.bases[static_cast<int>(buffer.space)];
      MAREA_CHECK(base != nullptr || buffer.space == Space::kFile, "an arena is missing");
      spans_[i].push_back(base == nullptr
                              ? std::span<std::byte>()
                              : std::span(base + buffer.offset + access.offset, access.bytes));
    }
  }
}

Executor::~Executor() {
  // The thread that retired the last op may still be leaving Pump.
  while (true) {
    MutexLock lock(inbox_mutex_);
    if (!pumping_) break;
  }
  MutexLock lock(mutex_);
  MAREA_CHECK(InFlight() == 0, "an executor was destroyed while ops were in flight");
}

uint64_t Executor::Enqueue(const StepMask& mask) {
  MAREA_CHECK(!(mask.train && mask.eval), "a turn either trains or evaluates");
  uint64_t turn;
  {
    MutexLock lock(mutex_);
    turn = turns_++;
    masks_.push_back(mask);
  }
  bool claimed;
  {
    MutexLock lock(inbox_mutex_);
    claimed = ClaimPump();
  }
  if (claimed) Pump();
  return turn;
}

Status Executor::WaitForTurn(uint64_t turn) {
  MutexLock lock(mutex_);
  while (TurnsRetired() <= turn && (failure_.ok() || InFlight() > 0)) changed_.Wait(mutex_);
  return failure_;
}

Status Executor::Drain() {
  MutexLock lock(mutex_);
  while (failure_.ok() ? TurnsRetired() < turns_ : InFlight() > 0) changed_.Wait(mutex_);
  return failure_;
}

void Executor::Cancel(Status status) {
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  changed_.NotifyAll();
}

uint64_t Executor::turns_enqueued() const {
  MutexLock lock(mutex_);
  return turns_;
}

uint64_t Executor::turns_retired() const {
  MutexLock lock(mutex_);
  return TurnsRetired();
}

bool Executor::failed() const {
  MutexLock lock(mutex_);
  return !failure_.ok();
}

StallSeconds Executor::stall_seconds() const {
  MutexLock lock(mutex_);
  return stall_seconds_;
}

// The news and the claim are one step: once the news can be seen, another thread may retire the
// last op and the executor may be gone.
void Executor::Complete(uint32_t op_index, uint64_t turn, Status status) {
  {
    MutexLock lock(inbox_mutex_);
    inbox_.push_back({op_index, turn, std::move(status)});
    if (!ClaimPump()) return;
  }
  Pump();
}

// One thread pumps at a time. A thread that finds another pumping leaves its news in the inbox and
// asks for one more round; a runner that completes inside Start does the same on this very thread.
bool Executor::ClaimPump() {
  if (!std::exchange(pumping_, true)) return true;
  pump_again_ = true;
  return false;
}

void Executor::Pump() {
  while (true) {
    {
      MutexLock lock(mutex_);
      std::vector<Finished> finished;
      {
        MutexLock inbox_lock(inbox_mutex_);
        finished.swap(inbox_);
        pump_again_ = false;
      }
      AccountStall();
      for (const Finished& each : finished) Retire(each);
      while (IssueReady()) {
      }
      stall_root_ = StallRoot();
      while (first_mask_turn_ < TurnsRetired()) {
        masks_.pop_front();
        ++first_mask_turn_;
      }
      changed_.NotifyAll();
    }
    MutexLock lock(inbox_mutex_);
    if (!pump_again_ && inbox_.empty()) {
      pumping_ = false;
      return;
    }
  }
}

bool Executor::HasNext(int lane) const {
  return lanes_[lane].issued < turns_ * plan_.lane_ops[lane].size();
}

bool Executor::IssueReady() {
  bool any = false;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    while (failure_.ok() && IssueNext(lane)) any = true;
  }
  return any;
}

// Issues the lane's next op if it may start now.
bool Executor::IssueNext(int lane) {
  LaneState& state = lanes_[lane];
  if (!HasNext(lane) || state.issued - state.retired >= plan_.lane_depth[lane]) return false;
  const uint64_t count = plan_.lane_ops[lane].size();
  const uint64_t turn = state.issued / count;
  const uint32_t op_index = plan_.lane_ops[lane][state.issued % count];
  const Op& op = plan_.ops[op_index];
  for (const Wait& wait : op.waits) {
    if (!Met(wait, turn)) return false;
  }
  const StepMask mask = masks_[turn - first_mask_turn_];
  const bool active = Active(op, mask);
  state.done.push_back(false);
  const uint64_t absolute = state.issued++;
  if (options_.observer) options_.observer->OnIssue(op_index, turn, options_.clock(), active);
  if (active) {
    runner_.Start(
        {&plan_, op_index, turn, mask, spans_[op_index]},
        [this, op_index, turn](Status status) { Complete(op_index, turn, std::move(status)); });
  } else {
    MarkDone(lane, absolute);
  }
  return true;
}

bool Executor::Met(const Wait& wait, uint64_t turn) const {
  if (turn < wait.steps_back) return true;
  const int lane = static_cast<int>(wait.lane);
  const uint64_t absolute = (turn - wait.steps_back) * plan_.lane_ops[lane].size() + wait.position;
  return lanes_[lane].retired > absolute;
}

void Executor::Retire(const Finished& finished) {
  const Op& op = plan_.ops[finished.op_index];
  const int lane = static_cast<int>(op.lane);
  if (options_.observer) {
    options_.observer->OnComplete(finished.op_index, finished.turn, options_.clock());
  }
  if (!finished.status.ok() && failure_.ok()) failure_ = finished.status;
  MarkDone(lane, finished.turn * plan_.lane_ops[lane].size() + op.position);
}

void Executor::MarkDone(int lane, uint64_t absolute) {
  LaneState& state = lanes_[lane];
  MAREA_CHECK(absolute >= state.retired && absolute < state.issued,
              "a completion came for an op that is not in flight");
  bool& done = state.done[absolute - state.retired];
  MAREA_CHECK(!done, "an op completed twice");
  done = true;
  while (!state.done.empty() && state.done.front()) {
    state.done.pop_front();
    ++state.retired;
  }
}

// Adds the time since the last look to the lane that the compute lane was waiting for.
void Executor::AccountStall() {
  if (!options_.clock) return;
  const double now = options_.clock();
  if (stall_root_ >= 0) stall_seconds_[stall_root_] += now - stall_since_;
  stall_since_ = now;
}

// Follows unmet waits from the idle compute lane to a lane that is busy.
int Executor::StallRoot() const {
  int lane = static_cast<int>(Lane::kCompute);
  if (!failure_.ok() || !HasNext(lane) || lanes_[lane].issued > lanes_[lane].retired) return -1;
  for (int hop = 0; hop < kLaneCount; ++hop) {
    if (!HasNext(lane) || lanes_[lane].issued - lanes_[lane].retired > 0) return lane;
    const uint64_t count = plan_.lane_ops[lane].size();
    const Op& op = plan_.ops[plan_.lane_ops[lane][lanes_[lane].issued % count]];
    const uint64_t turn = lanes_[lane].issued / count;
    int next = -1;
    for (const Wait& wait : op.waits) {
      if (!Met(wait, turn)) next = static_cast<int>(wait.lane);
    }
    if (next < 0) return lane;
    lane = next;
  }
  return lane;
}

uint64_t Executor::InFlight() const {
  uint64_t count = 0;
  for (const LaneState& lane : lanes_) {
    for (const bool done : lane.done) count += done ? 0 : 1;
  }
  return count;
}

uint64_t Executor::TurnsRetired() const {
  uint64_t turns = turns_;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const uint64_t count = plan_.lane_ops[lane].size();
    if (count > 0) turns = std::min(turns, lanes_[lane].retired / count);
  }
  return turns;
}

}  // namespace marea
