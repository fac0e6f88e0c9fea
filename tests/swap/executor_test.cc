// The executor on small plans made by hand: order, depth, waits across turns, skipped ops, failure,
// cancelling, runners that complete at once or from threads of their own, and where time is lost.
#include "swap/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/virtual_clock.h"
#include "tests/swap/held_runner.h"
#include "tests/swap/order_checker.h"

namespace marea {
namespace {

TEST(ExecutorTest, ALaneIssuesInOrderUpToItsDepthAndRetiresInOrder) {
  StepPlan plan =
      MakePlan({MakeOp(Lane::kNvmeRead), MakeOp(Lane::kNvmeRead), MakeOp(Lane::kNvmeRead),
                MakeOp(Lane::kNvmeRead), MakeOp(Lane::kCompute, {{Lane::kNvmeRead, 1, 0}})});
  Depth(plan, Lane::kNvmeRead) = 2;
  HeldRunner runner;
  Executor executor(plan, runner, {});
  EXPECT_EQ(executor.Enqueue(kTrain), 0u);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{0, 0}, {1, 0}}));
  // The second is done, the first is not: neither the lane nor who waits for the second goes on.
  runner.Finish(1);
  EXPECT_TRUE(runner.TakeStarted().empty());
  runner.Finish(0);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{2, 0}, {3, 0}, {4, 0}}));
  runner.Finish(4);
  runner.Finish(2);
  EXPECT_EQ(executor.turns_retired(), 0u);
  runner.Finish(3);
  EXPECT_EQ(executor.turns_retired(), 1u);
  EXPECT_TRUE(executor.WaitForTurn(0).ok());
  EXPECT_TRUE(executor.Drain().ok());
}

TEST(ExecutorTest, AnOpStartsWhenTheLastOfItsWaitsIsMet) {
  const StepPlan plan =
      MakePlan({MakeOp(Lane::kH2d), MakeOp(Lane::kCpu), MakeOp(Lane::kCpu),
                MakeOp(Lane::kCompute, {{Lane::kH2d, 0, 0}, {Lane::kCpu, 1, 0}})});
  for (const bool cpu_first : {false, true}) {
    HeldRunner runner;
    Executor executor(plan, runner, {});
    executor.Enqueue(kTrain);
    EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{0, 0}, {1, 0}}));
    if (!cpu_first) runner.Finish(0);
    runner.Finish(1);
    EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{2, 0}}));
    runner.Finish(2);
    if (cpu_first) {
      EXPECT_TRUE(runner.TakeStarted().empty());
      runner.Finish(0);
    }
    EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{3, 0}}));
    runner.Finish(3);
    EXPECT_TRUE(executor.Drain().ok());
  }
}

TEST(ExecutorTest, AWaitOneStepBackHoldsTheNextTurnAndNotTheFirst) {
  // The slot of the copy is free again when compute of the turn before is done.
  const StepPlan plan =
      MakePlan({MakeOp(Lane::kH2d, {{Lane::kCompute, 0, 1}}),
                MakeOp(Lane::kCompute, {{Lane::kH2d, 0, 0}}), MakeOp(Lane::kCpu)});
  HeldRunner runner;
  Executor executor(plan, runner, {});
  executor.Enqueue(kTrain);
  executor.Enqueue(kTrain);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{0, 0}, {2, 0}}));
  runner.Finish(2);  // a lane that waits for nothing is a turn ahead
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{2, 1}}));
  runner.Finish(0);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{1, 0}}));
  runner.Finish(1);
  EXPECT_EQ(executor.turns_retired(), 1u);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{0, 1}}));
  runner.Finish(0, 1);
  runner.Finish(1, 1);
  runner.Finish(2, 1);
  EXPECT_TRUE(executor.Drain().ok());
  EXPECT_EQ(executor.turns_retired(), 2u);
}

TEST(ExecutorTest, ASkippedOpWaitsAndAdvancesItsLaneAndDoesNotRun) {
  const StepPlan plan = MakePlan(
      {MakeOp(Lane::kH2d), MakeOp(Lane::kCpu, {{Lane::kH2d, 0, 0}}, When::kIfUpdate),
       MakeOp(Lane::kCompute, {{Lane::kCpu, 0, 0}}), MakeOp(Lane::kCpu, {}, When::kIfEval)});
  OrderChecker order(plan, {kTrain});
  HeldRunner runner;
  VirtualClock clock;
  Executor executor(
      plan, runner,
      {.clock = [&] { return static_cast<double>(clock.now()); }, .observers = {&order}});
  executor.Enqueue(kTrain);
  // The skipped op may not pass its wait: who waits for it relies on what it waits for.
  EXPECT_EQ(order.issued(Lane::kCpu), 0u);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{0, 0}}));
  runner.Finish(0);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{2, 0}}));
  EXPECT_EQ(order.issued(Lane::kCpu), 2u);
  runner.Finish(2);
  EXPECT_TRUE(executor.Drain().ok());
  EXPECT_EQ(order.failure(), "");
  EXPECT_TRUE(order.AllDone());
  EXPECT_EQ(order.completed(), 2u);
}

TEST(ExecutorTest, TheFirstFailureStopsIssuingAndIsReturned) {
  const StepPlan plan = MakePlan(
      {MakeOp(Lane::kNvmeRead), MakeOp(Lane::kNvmeRead), MakeOp(Lane::kCpu), MakeOp(Lane::kCpu)});
  HeldRunner runner;
  Executor executor(plan, runner, {});
  executor.Enqueue(kTrain);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{0, 0}, {2, 0}}));
  runner.Finish(0, 0, Status::Corrupt("the first"));
  EXPECT_TRUE(executor.failed());
  runner.Finish(2, 0, Status::Failed("the second"));  // what was in flight ends
  EXPECT_TRUE(runner.TakeStarted().empty());
  executor.Enqueue(kTrain);
  EXPECT_TRUE(runner.TakeStarted().empty());
  for (const Status& status :
       {executor.WaitForTurn(0), executor.WaitForTurn(1), executor.Drain()}) {
    EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
    EXPECT_EQ(status.message(), "the first");
  }
  EXPECT_EQ(executor.turns_retired(), 0u);
}

TEST(ExecutorTest, CancelStopsIssuingAndALaterFailureDoesNotReplaceIt) {
  const StepPlan plan = MakePlan({MakeOp(Lane::kCompute), MakeOp(Lane::kCompute)});
  HeldRunner runner;
  Executor executor(plan, runner, {});
  executor.Enqueue(kTrain);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{0, 0}}));
  executor.Cancel(Status::Cancelled("stopped by the user"));
  runner.Finish(0, 0, Status::Failed("too late to matter"));
  EXPECT_TRUE(runner.TakeStarted().empty());
  EXPECT_EQ(executor.Drain().message(), "stopped by the user");
  EXPECT_EQ(executor.WaitForTurn(0).code(), ErrorCode::kCancelled);
}

// Completes within Start.
class InlineRunner final : public OpRunner {
 public:
  void Start(const OpCall& /*call*/, Completion done) override {
    depth_max_ = std::max(depth_max_, ++depth_);
    ++started_;
    done(Status::Ok());
    --depth_;
  }
  int depth_max() const { return depth_max_; }
  uint64_t started() const { return started_; }

 private:
  int depth_ = 0;
  int depth_max_ = 0;
  uint64_t started_ = 0;
};

TEST(ExecutorTest, ARunnerThatCompletesInsideStartIsNotEnteredAgain) {
  std::vector<Op> ops;
  for (uint32_t i = 0; i < 50'000; ++i) {
    ops.push_back(MakeOp(Lane::kH2d));
    ops.push_back(MakeOp(Lane::kCompute, {{Lane::kH2d, i, 0}}));
  }
  const StepPlan plan = MakePlan(std::move(ops));
  InlineRunner runner;
  Executor executor(plan, runner, {});
  executor.Enqueue(kTrain);
  EXPECT_TRUE(executor.Drain().ok());
  EXPECT_EQ(runner.started(), plan.ops.size());
  EXPECT_EQ(runner.depth_max(), 1);
}

// A few threads that finish ops in any order, as soon as they like.
class ThreadedRunner final : public OpRunner {
 public:
  explicit ThreadedRunner(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Work(i); });
  }
  ~ThreadedRunner() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Start(const OpCall& call, Completion done) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({call.turn == fail_turn && call.op_index == 0, std::move(done)});
    }
    changed_.notify_one();
  }
  uint64_t fail_turn = UINT64_MAX;  // op 0 of this turn fails; set before the first Start

 private:
  struct Held {
    bool fails;
    Completion done;
  };
  void Work(int seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const auto at = waiting_.begin() + static_cast<ptrdiff_t>(random() % waiting_.size());
      const Held held = std::move(*at);
      waiting_.erase(at);
      lock.unlock();
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
      held.done(held.fails ? Status::Failed("op 0 failed") : Status::Ok());
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Held> waiting_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// Lanes that chase each other, within a turn and across turns.
StepPlan ChasingPlan() {
  std::vector<Op> ops;
  for (uint32_t i = 0; i < 8; ++i) {
    ops.push_back(MakeOp(Lane::kNvmeRead, {{Lane::kCompute, i, 1}}));
    ops.push_back(MakeOp(Lane::kH2d, {{Lane::kNvmeRead, i, 0}},
                         i % 2 == 0 ? When::kAlways : When::kIfUpdate));
    ops.push_back(MakeOp(Lane::kCompute, {{Lane::kH2d, i, 0}, {Lane::kNvmeWrite, i, 1}}));
    ops.push_back(MakeOp(Lane::kNvmeWrite, {{Lane::kCompute, i, 0}}));
  }
  StepPlan plan = MakePlan(std::move(ops));
  Depth(plan, Lane::kNvmeRead) = 4;
  Depth(plan, Lane::kNvmeWrite) = 3;
  return plan;
}

TEST(ExecutorTest, CompletionsFromSeveralThreadsKeepTheOrder) {
  const StepPlan plan = ChasingPlan();
  std::vector<StepMask> masks;
  for (int i = 0; i < 100; ++i) {
    masks.push_back({.update = i % 3 != 0, .train = true, .micro_count = 1});
  }
  OrderChecker order(plan, masks);
  ThreadedRunner runner(4);
  Executor executor(plan, runner, {.clock = [] { return 0.0; }, .observers = {&order}});
  for (const StepMask& mask : masks) {
    const uint64_t turn = executor.Enqueue(mask);
    if (turn < 2) continue;
    ASSERT_TRUE(executor.WaitForTurn(turn - 2).ok());
    ASSERT_GE(executor.turns_retired(), turn - 1);
  }
  ASSERT_TRUE(executor.Drain().ok());
  EXPECT_EQ(order.failure(), "");
  EXPECT_TRUE(order.AllDone());
  EXPECT_EQ(order.in_flight(), 0u);
}

TEST(ExecutorTest, AFailureOnAThreadWakesWhoWaits) {
  const StepPlan plan = ChasingPlan();
  for (uint64_t fail_turn = 0; fail_turn < 20; ++fail_turn) {
    ThreadedRunner runner(4);
    runner.fail_turn = fail_turn;
    OrderChecker order(plan, std::vector<StepMask>(21, kTrain));
    Executor executor(plan, runner, {.clock = [] { return 0.0; }, .observers = {&order}});
    for (int i = 0; i < 21; ++i) executor.Enqueue(kTrain);
    EXPECT_EQ(executor.WaitForTurn(20).message(), "op 0 failed");
    EXPECT_EQ(executor.Drain().message(), "op 0 failed");
    EXPECT_EQ(order.in_flight(), 0u);
    EXPECT_EQ(order.failure(), "");
  }
}

// A thread that has just reported the last completion must not touch what is gone.
TEST(ExecutorTest, AnExecutorMayGoAsSoonAsDrainReturns) {
  const StepPlan plan = MakePlan({MakeOp(Lane::kH2d), MakeOp(Lane::kD2h), MakeOp(Lane::kCpu)});
  ThreadedRunner runner(3);
  for (int i = 0; i < 3000; ++i) {
    const auto executor = std::make_unique<Executor>(plan, runner, Executor::Options{});
    executor->Enqueue(kTrain);
    ASSERT_TRUE(executor->Drain().ok());
  }
}

TEST(ExecutorTest, TheComputeLanesIdleTimeIsChargedToTheRootOfItsWaits) {
  // read 3 s -> copy 2 s -> compute 1 s; then compute waits for the 7 s of cpu that began at once.
  const StepPlan plan =
      MakePlan({MakeOp(Lane::kNvmeRead), MakeOp(Lane::kH2d, {{Lane::kNvmeRead, 0, 0}}),
                MakeOp(Lane::kCompute, {{Lane::kH2d, 0, 0}}), MakeOp(Lane::kCpu),
                MakeOp(Lane::kCompute, {{Lane::kCpu, 0, 0}})});
  VirtualClock clock;
  class TimedRunner final : public OpRunner {
   public:
    explicit TimedRunner(VirtualClock& clock) : clock_(clock) {}
    void Start(const OpCall& call, Completion done) override {
      constexpr uint64_t kSeconds[] = {3, 2, 1, 7, 1};
      clock_.ScheduleAfter(kSeconds[call.op_index] * 1'000'000'000,
                           [done = std::move(done)] { done(Status::Ok()); });
    }

   private:
    VirtualClock& clock_;
  } runner(clock);
  Executor executor(plan, runner,
                    {.clock = [&] { return static_cast<double>(clock.now()) * 1e-9; }});
  executor.Enqueue(kTrain);
  while (clock.RunNext()) {
  }
  ASSERT_TRUE(executor.Drain().ok());
  EXPECT_EQ(clock.now(), 8'000'000'000u);
  const StallSeconds stall = executor.stall_seconds();
  EXPECT_DOUBLE_EQ(stall[static_cast<size_t>(Lane::kNvmeRead)], 3);
  EXPECT_DOUBLE_EQ(stall[static_cast<size_t>(Lane::kH2d)], 2);
  EXPECT_DOUBLE_EQ(stall[static_cast<size_t>(Lane::kCpu)], 1);
  for (const Lane lane : {Lane::kNvmeWrite, Lane::kD2h, Lane::kCompute, Lane::kComm}) {
    EXPECT_DOUBLE_EQ(stall[static_cast<size_t>(lane)], 0) << LaneName(lane);
  }
}

TEST(ExecutorDeathTest, AnOpThatCompletesTwiceStopsTheProcess) {
  const StepPlan plan = MakePlan({MakeOp(Lane::kCompute), MakeOp(Lane::kCompute)});
  HeldRunner runner;
  Executor executor(plan, runner, {});
  executor.Enqueue(kTrain);
  const Completion done = runner.held(0);
  runner.Finish(0);
  EXPECT_DEATH(done(Status::Ok()), "not in flight");
  runner.Finish(1);
}

}  // namespace
}  // namespace marea
