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

Status Executor::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

StallSeconds Executor::stall_seconds() const {
  MutexLock lock(mutex_);
  return stall_seconds_;
}

// The news and the claim are one step: once the news can be seen, another thread may retire the
// last op and the executor may be gone.
void Executor::Tell(News news) {
  {
    MutexLock lock(inbox_mutex_);
    inbox_.push_back(std::move(news));
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
      std::vector<News> news;
      {
        MutexLock inbox_lock(inbox_mutex_);
        news.swap(inbox_);
        pump_again_ = false;
      }
      AccountStall();
      for (const News& each : news) Receive(each);
      while (IssueReady()) {
      }
      for (int lane = 0; lane < kLaneCount; ++lane) BeginHead(lane);
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

const Op& Executor::OpAt(int lane, uint64_t absolute) const {
  const std::vector<uint32_t>& ops = plan_.lane_ops[lane];
  return plan_.ops[ops[absolute % ops.size()]];
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
  if (!HasNext(lane) || state.issued - state.retired >= DepthOf(lane)) return false;
  // In a stream each op follows the one before: that must be there to be followed.
  if (IsDevice(lane) && state.launched < state.issued) return false;
  const uint64_t count = plan_.lane_ops[lane].size();
  const uint64_t turn = state.issued / count;
  const uint32_t op_index = plan_.lane_ops[lane][state.issued % count];
  const Op& op = plan_.ops[op_index];
  const StepMask mask = masks_[turn - first_mask_turn_];
  const bool active = Active(op, mask);
  for (const Wait& wait : op.waits) {
    // A skipped op puts nothing into its stream that others could wait behind.
    if (active ? !Met(lane, wait, turn) : !Retired(wait, turn)) return false;
  }
  ++state.issued;
  OpState& own = state.in_flight.emplace_back(OpState{.active = active});
  for (ExecutorObserver* observer : options_.observers) {
    observer->OnIssue(op_index, turn, options_.clock(), active);
  }
  if (!active) {
    own.launched = own.done = true;
    Advance(lane);
    return true;
  }
  if (!IsDevice(lane)) Begin(own, op_index, turn);
  std::function<void()> launched;
  if (IsDevice(lane)) {
    launched = [this, op_index, turn] {
      Tell({NewsKind::kLaunched, op_index, turn, Status::Ok()});
    };
  }
  runner_.Start({&plan_, op_index, turn, mask, spans_[op_index]},
                Completion(
                    [this, op_index, turn](Status status) {
                      Tell({NewsKind::kDone, op_index, turn, std::move(status)});
                    },
                    std::move(launched)));
  return true;
}

bool Executor::Retired(const Wait& wait, uint64_t turn) const {
  if (turn < wait.steps_back) return true;
  const int lane = static_cast<int>(wait.lane);
  const uint64_t absolute = (turn - wait.steps_back) * plan_.lane_ops[lane].size() + wait.position;
  return lanes_[lane].retired > absolute;
}

bool Executor::Met(int lane, const Wait& wait, uint64_t turn) const {
  const int other = static_cast<int>(wait.lane);
  if (!IsDevice(lane) || !IsDevice(other)) return Retired(wait, turn);
  if (turn < wait.steps_back) return true;
  const uint64_t absolute = (turn - wait.steps_back) * plan_.lane_ops[other].size() + wait.position;
  return lanes_[other].launched > absolute;
}

Executor::OpState& Executor::Find(const News& news, int* lane) {
  const Op& op = plan_.ops[news.op_index];
  *lane = static_cast<int>(op.lane);
  LaneState& state = lanes_[*lane];
  const uint64_t absolute = news.turn * plan_.lane_ops[*lane].size() + op.position;
  MAREA_CHECK(absolute >= state.retired && absolute < state.issued,
              "news came of an op that is not in flight");
  return state.in_flight[absolute - state.retired];
}

void Executor::Receive(const News& news) {
  int lane;
  OpState& state = Find(news, &lane);
  MAREA_CHECK(!state.done, "an op completed twice");
  state.launched = true;
  if (news.kind == NewsKind::kDone) {
    if (!state.begun) Begin(state, news.op_index, news.turn);
    state.done = true;
    for (ExecutorObserver* observer : options_.observers) {
      observer->OnComplete(news.op_index, news.turn, options_.clock());
    }
    if (!news.status.ok() && failure_.ok()) failure_ = news.status;
  }
  Advance(lane);
  BeginHead(lane);
}

// Moves the lane's counters past what is launched and done.
void Executor::Advance(int lane) {
  LaneState& state = lanes_[lane];
  while (state.launched < state.issued &&
         state.in_flight[state.launched - state.retired].launched) {
    ++state.launched;
  }
  while (!state.in_flight.empty() && state.in_flight.front().done) {
    state.in_flight.pop_front();
    ++state.retired;
  }
}

// A device lane's oldest op runs as soon as what it waits for is done.
void Executor::BeginHead(int lane) {
  LaneState& state = lanes_[lane];
  if (!IsDevice(lane) || state.in_flight.empty() || state.in_flight.front().begun) return;
  if (UnmetLane(lane) >= 0) return;
  const uint64_t count = plan_.lane_ops[lane].size();
  Begin(state.in_flight.front(), plan_.lane_ops[lane][state.retired % count],
        state.retired / count);
}

void Executor::Begin(OpState& state, uint32_t op_index, uint64_t turn) {
  state.begun = true;
  for (ExecutorObserver* observer : options_.observers) {
    observer->OnBegin(op_index, turn, options_.clock());
  }
}

// Adds the time since the last look to the lane that the compute lane was waiting for.
void Executor::AccountStall() {
  if (!options_.clock) return;
  const double now = options_.clock();
  if (stall_root_ >= 0) stall_seconds_[stall_root_] += now - stall_since_;
  stall_since_ = now;
}

// The lane that the oldest op of `lane` still waits for, -1 if none. REQUIRES: there is such an op,
// in flight or to come.
int Executor::UnmetLane(int lane) const {
  const LaneState& state = lanes_[lane];
  const uint64_t turn = state.retired / plan_.lane_ops[lane].size();
  int unmet = -1;
  for (const Wait& wait : OpAt(lane, state.retired).waits) {
    if (!Retired(wait, turn)) unmet = static_cast<int>(wait.lane);
  }
  return unmet;
}

// Does the lane work now? In a device lane the oldest op may be launched and not have begun.
bool Executor::Busy(int lane) const {
  return !lanes_[lane].in_flight.empty() && (!IsDevice(lane) || UnmetLane(lane) < 0);
}

bool Executor::IdleForGood(int lane) const {
  return lanes_[lane].in_flight.empty() && !HasNext(lane);
}

// Follows unmet waits from the idle compute lane to a lane that is busy.
int Executor::StallRoot() const {
  int lane = static_cast<int>(Lane::kCompute);
  if (!failure_.ok() || IdleForGood(lane) || Busy(lane)) return -1;
  for (int hop = 0; hop < kLaneCount; ++hop) {
    if (IdleForGood(lane) || Busy(lane)) return lane;
    const int next = UnmetLane(lane);
    if (next < 0) return lane;
    lane = next;
  }
  return lane;
}

uint64_t Executor::InFlight() const {
  uint64_t count = 0;
  for (const LaneState& lane : lanes_) {
    for (const OpState& op : lane.in_flight) count += op.done ? 0 : 1;
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
