// Turns of which the mask skips every op: they retire, hold nobody up, and keep the order of the
// waits that pass through them.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "swap/executor.h"
#include "tests/swap/held_runner.h"
#include "tests/swap/order_checker.h"

namespace marea {
namespace {

constexpr StepMask kNothing{};

// A read, a copy and compute that trains, then a write; the read's buffer is free again when the
// compute of the turn before is done, and the compute's when the write of the turn before is.
enum : uint32_t { kRead, kCopy, kCompute, kWrite };
StepPlan TrainingPlan() {
  return MakePlan(
      {MakeOp(Lane::kNvmeRead, {{Lane::kCompute, 0, 1}}, When::kIfTrain),
       MakeOp(Lane::kH2d, {{Lane::kNvmeRead, 0, 0}}, When::kIfForward),
       MakeOp(Lane::kCompute, {{Lane::kH2d, 0, 0}, {Lane::kNvmeWrite, 0, 1}}, When::kIfTrain),
       MakeOp(Lane::kNvmeWrite, {{Lane::kCompute, 0, 0}}, When::kIfTrain)});
}

// Plays a whole training turn of TrainingPlan, of which nothing has started but the read.
void PlayTurn(HeldRunner& runner, uint64_t turn) {
  for (const uint32_t op : {kRead, kCopy, kCompute, kWrite}) {
    EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{op, turn}}));
    runner.Finish(op, turn);
  }
}

Executor::Options Watched(OrderChecker& order) {
  return {.clock = [] { return 0.0; }, .observers = {&order}};
}

TEST(ExecutorTurnsTest, AnEmptyTurnRetiresAtOnceAndTheNextOneRuns) {
  const StepPlan plan = TrainingPlan();
  OrderChecker order(plan, {kNothing, kTrain, kNothing});
  HeldRunner runner;
  Executor executor(plan, runner, Watched(order));
  EXPECT_EQ(executor.Enqueue(kNothing), 0u);
  EXPECT_EQ(executor.turns_retired(), 1u);
  EXPECT_TRUE(executor.WaitForTurn(0).ok());
  EXPECT_TRUE(executor.Drain().ok());
  EXPECT_TRUE(runner.TakeStarted().empty());
  for (const Lane lane : {Lane::kNvmeRead, Lane::kH2d, Lane::kCompute, Lane::kNvmeWrite}) {
    EXPECT_EQ(order.issued(lane), 1u) << LaneName(lane);
  }
  EXPECT_EQ(executor.Enqueue(kTrain), 1u);
  EXPECT_EQ(executor.turns_retired(), 1u);
  PlayTurn(runner, 1);
  EXPECT_EQ(executor.Enqueue(kNothing), 2u);
  EXPECT_TRUE(executor.WaitForTurn(2).ok());
  EXPECT_TRUE(executor.Drain().ok());
  EXPECT_EQ(executor.turns_retired(), 3u);
  EXPECT_EQ(order.failure(), "");
  EXPECT_TRUE(order.AllDone());
  EXPECT_EQ(order.completed(), 4u);
}

TEST(ExecutorTurnsTest, ManyEmptyTurnsInARowRetireInOrder) {
  const StepPlan plan = TrainingPlan();
  std::vector<StepMask> masks(5'000, kNothing);
  masks.front() = masks.back() = kTrain;
  OrderChecker order(plan, masks);
  HeldRunner runner;
  Executor executor(plan, runner, Watched(order));
  executor.Enqueue(kTrain);
  PlayTurn(runner, 0);
  for (uint64_t turn = 1; turn + 1 < masks.size(); ++turn) {
    EXPECT_EQ(executor.Enqueue(masks[turn]), turn);
    ASSERT_EQ(executor.turns_retired(), turn + 1);
  }
  executor.Enqueue(kTrain);
  PlayTurn(runner, masks.size() - 1);
  EXPECT_TRUE(executor.Drain().ok());
  EXPECT_EQ(executor.turns_retired(), masks.size());
  EXPECT_EQ(order.failure(), "");
  EXPECT_TRUE(order.AllDone());
}

TEST(ExecutorTurnsTest, EmptyTurnsWaitForTheTurnBeforeThemAndPassItsWaitsOn) {
  const StepPlan plan = TrainingPlan();
  OrderChecker order(plan, {kTrain, kNothing, kNothing, kTrain});
  HeldRunner runner;
  Executor executor(plan, runner, Watched(order));
  for (const StepMask& mask : {kTrain, kNothing, kNothing, kTrain}) executor.Enqueue(mask);
  // The read of turn 3 waits for the compute of turn 2, which is skipped, and so for that of 0.
  for (const uint32_t op : {kRead, kCopy}) {
    EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{op, 0}}));
    runner.Finish(op, 0);
  }
  EXPECT_EQ(order.issued(Lane::kNvmeRead), 1u);
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{kCompute, 0}}));
  runner.Finish(kCompute, 0);
  // Turn 1's compute, skipped as it is, waits for the write of turn 0, and the read of turn 2 for
  // turn 1's compute.
  EXPECT_EQ(runner.TakeStarted(), (std::vector<Started>{{kWrite, 0}}));
  EXPECT_EQ(order.issued(Lane::kCompute), 1u);
  EXPECT_EQ(order.issued(Lane::kNvmeRead), 2u);
  EXPECT_EQ(order.issued(Lane::kH2d), 2u);
  EXPECT_EQ(executor.turns_retired(), 0u);
  runner.Finish(kWrite, 0);
  // Both empty turns pass in one go.
  EXPECT_EQ(executor.turns_retired(), 3u);
  EXPECT_TRUE(executor.WaitForTurn(2).ok());
  PlayTurn(runner, 3);
  EXPECT_TRUE(executor.Drain().ok());
  EXPECT_EQ(order.failure(), "");
  EXPECT_TRUE(order.AllDone());
}

TEST(ExecutorTurnsTest, AWaitForAnEmptyTurnEndsWithTheTurnBeforeIt) {
  const StepPlan plan = MakePlan({MakeOp(Lane::kCompute, {}, When::kIfTrain)});
  for (int round = 0; round < 500; ++round) {
    HeldRunner runner;
    Executor executor(plan, runner, {});
    executor.Enqueue(kTrain);
    executor.Enqueue(kNothing);
    EXPECT_EQ(executor.turns_retired(), 0u);
    std::thread finisher([&] { runner.Finish(0); });
    EXPECT_TRUE(executor.WaitForTurn(1).ok());
    EXPECT_EQ(executor.turns_retired(), 2u);
    finisher.join();
  }
}

TEST(ExecutorTurnsTest, AfterAFailureEmptyTurnsDoNotCount) {
  const StepPlan plan = TrainingPlan();
  HeldRunner runner;
  Executor executor(plan, runner, {});
  executor.Enqueue(kTrain);
  executor.Enqueue(kNothing);
  runner.Finish(kRead, 0, Status::Corrupt("the read"));
  executor.Enqueue(kNothing);
  EXPECT_EQ(executor.WaitForTurn(2).message(), "the read");
  EXPECT_EQ(executor.Drain().message(), "the read");
  EXPECT_EQ(executor.turns_retired(), 0u);
}

TEST(ExecutorTurnsTest, APlanWithoutOpsRetiresItsTurns) {
  const StepPlan plan = MakePlan({});
  HeldRunner runner;
  Executor executor(plan, runner, {});
  EXPECT_EQ(executor.Enqueue(kTrain), 0u);
  EXPECT_EQ(executor.Enqueue(kNothing), 1u);
  EXPECT_TRUE(executor.WaitForTurn(1).ok());
  EXPECT_TRUE(executor.Drain().ok());
  EXPECT_EQ(executor.turns_retired(), 2u);
}

// Empty turns among others, in every order of completions that a seed brings up.
TEST(ExecutorTurnsTest, EmptyTurnsAmongOthersKeepTheOrder) {
  StepPlan plan = MakePlan(
      {MakeOp(Lane::kNvmeRead, {{Lane::kCompute, 0, 1}}, When::kIfTrain),
       MakeOp(Lane::kNvmeRead, {{Lane::kNvmeWrite, 0, 1}}, When::kIfUpdate),
       MakeOp(Lane::kH2d, {{Lane::kNvmeRead, 0, 0}}, When::kIfForward),
       MakeOp(Lane::kCompute, {{Lane::kH2d, 0, 0}}, When::kIfForward),
       MakeOp(Lane::kCpu, {{Lane::kNvmeRead, 1, 0}}, When::kIfUpdate),
       MakeOp(Lane::kNvmeWrite, {{Lane::kCpu, 0, 0}, {Lane::kCompute, 0, 1}}, When::kIfUpdate)});
  Depth(plan, Lane::kNvmeRead) = 2;
  constexpr StepMask kKinds[] = {kNothing,       kNothing,
                                 kTrain,         {.update = true},
                                 {.eval = true}, {.update = true, .train = true, .micro_count = 1}};
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<StepMask> masks(20);
    for (StepMask& mask : masks) mask = kKinds[random() % std::size(kKinds)];
    OrderChecker order(plan, masks);
    HeldRunner runner;
    Executor executor(plan, runner, Watched(order));
    std::vector<Started> held;
    for (uint64_t enqueued = 0; enqueued < masks.size() || !held.empty();) {
      if (enqueued < masks.size() && (held.empty() || random() % 3 == 0)) {
        executor.Enqueue(masks[enqueued++]);
      } else {
        std::swap(held[random() % held.size()], held.back());
        const Started next = held.back();
        held.pop_back();
        runner.Finish(next.first, next.second);
      }
      for (const Started& started : runner.TakeStarted()) held.push_back(started);
    }
    ASSERT_EQ(executor.turns_retired(), masks.size()) << "seed " << seed << order.Standing();
    EXPECT_TRUE(executor.Drain().ok());
    EXPECT_EQ(order.failure(), "") << "seed " << seed;
    EXPECT_TRUE(order.AllDone()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace marea
