// A trace opens in Perfetto if it is JSON in Chrome's format and the events of a row do not
// overlap; it is right if every op that ran is in it once.
#include "engine/report/trace_recorder.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "engine/plan/plan_totals.h"
#include "tests/engine/data/temp_folder.h"
#include "tests/engine/plan/random_plan.h"

namespace marea {
namespace {

using nlohmann::json;

// Runs a plan under a virtual clock: every op takes some time of its own, and completes in an order
// that differs from the order of issue.
class VirtualRunner : public OpRunner {
 public:
  void Start(const OpCall& call, Completion done) override {
    const double seconds = 1e-3 * (1 + (call.op_index * 7 + call.turn) % 5);
    due_.emplace(now_ + seconds, std::move(done));
  }
  double now() const { return now_; }
  void RunAll() {
    while (!due_.empty()) {
      const auto first = due_.begin();
      now_ = first->first;
      Completion done = std::move(first->second);
      due_.erase(first);
      done(Status::Ok());
    }
  }

 private:
  double now_ = 100.0;
  std::multimap<double, Completion> due_;
};

struct Arenas {
  explicit Arenas(const StepPlan& plan) {
    for (int space = 0; space < kSpaceCount; ++space) {
      if (static_cast<Space>(space) == Space::kFile) continue;
      bytes[space].resize(plan.space_bytes[space] + 1);
      bases[space] = bytes[space].data();
    }
  }
  std::array<std::vector<std::byte>, kSpaceCount> bytes;
  std::array<std::byte*, kSpaceCount> bases{};
};

// A plan of a random case, run for `turns` turns: the first only trains.
void RunTurns(const StepPlan& plan, uint32_t micro_count, uint64_t turns,
              ExecutorObserver& observer) {
  Arenas arenas(plan);
  VirtualRunner runner;
  Executor executor(
      plan, runner,
      {.bases = arenas.bases, .clock = [&] { return runner.now(); }, .observers = {&observer}});
  for (uint64_t turn = 0; turn < turns; ++turn) {
    executor.Enqueue({.update = turn > 0, .train = true, .micro_count = micro_count});
  }
  runner.RunAll();
  ASSERT_TRUE(executor.Drain().ok());
}

// Ops of a turn that run, by lane.
uint64_t ActiveOps(const StepPlan& plan, const StepMask& mask) {
  uint64_t count = 0;
  for (const PlannedLane& lane : CountLanes(plan, mask)) count += lane.op_count;
  return count;
}

TEST(TraceRecorder, EveryOpThatRanIsOnceInARowOfItsLane) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const RandomCase random_case(seed);
    const StepPlan plan = CompileStepPlan(random_case.spec).value();
    const uint32_t micro_count = random_case.spec.micro_count;
    TraceRecorder recorder(plan, {.turn_count = 2});
    RunTurns(plan, micro_count, 4, recorder);
    const json trace = json::parse(recorder.ToJson());

    std::map<int, std::string> row_names;
    std::map<int, double> row_end_us;
    std::map<std::pair<uint64_t, uint32_t>, int> seen;
    for (const json& event : trace["traceEvents"]) {
      EXPECT_EQ(event["pid"], 1);
      const int row = event["tid"];
      if (event["ph"] == "M") {
        if (event["name"] == "thread_name") row_names[row] = event["args"]["name"];
        continue;
      }
      ASSERT_EQ(event["ph"], "X");
      const double begin_us = event["ts"];
      EXPECT_GE(begin_us, 0.0);
      EXPECT_GE(begin_us, row_end_us[row] - 1e-3) << "seed " << seed << ": overlap in a row";
      row_end_us[row] = begin_us + event["dur"].get<double>();
      const uint32_t op_index = event["args"]["op"];
      ++seen[{event["args"]["turn"], op_index}];
      const Op& op = plan.ops[op_index];
      ASSERT_TRUE(row_names.contains(row));
      EXPECT_EQ(row_names[row].rfind(LaneName(op.lane), 0), 0u);
      EXPECT_EQ(event["cat"], OpKindName(op.kind));
      if (TransferBytes(op) > 0) {
        EXPECT_EQ(event["args"]["bytes"], TransferBytes(op));
      }
      const double expected_us =
          1e3 * static_cast<double>(1 + (op_index * 7 + event["args"]["turn"].get<uint64_t>()) % 5);
      EXPECT_NEAR(event["dur"].get<double>(), expected_us, 1e-3);
    }
    for (const auto& [op, count] : seen) EXPECT_EQ(count, 1);
    const uint64_t first = ActiveOps(plan, {.train = true, .micro_count = micro_count});
    EXPECT_EQ(seen.size(), first + ActiveOps(plan, SteadyTurn(micro_count))) << "seed " << seed;
  }
}

TEST(TraceRecorder, SeveralOpsInFlightGetRowsOfTheirOwn) {
  StepPlan plan;
  plan.lane_depth.fill(1);
  plan.lane_depth[static_cast<int>(Lane::kNvmeRead)] = 3;
  for (uint32_t i = 0; i < 6; ++i) {
    plan.lane_ops[static_cast<int>(Lane::kNvmeRead)].push_back(i);
    plan.ops.push_back({.kind = OpKind::kRead, .lane = Lane::kNvmeRead, .position = i});
  }
  TraceRecorder recorder(plan, {.turn_count = 1});
  RunTurns(plan, 1, 1, recorder);
  const json trace = json::parse(recorder.ToJson());
  std::set<std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") names.insert(event["args"]["name"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"nvme_read", "nvme_read 2", "nvme_read 3"}));
}

TEST(TraceRecorder, RecordsTheTurnsAskedForWithinItsBound) {
  const RandomCase random_case(2);
  const StepPlan plan = CompileStepPlan(random_case.spec).value();
  const auto turns_of = [&](const TraceOptions& options) {
    TraceRecorder recorder(plan, options);
    RunTurns(plan, random_case.spec.micro_count, 6, recorder);
    const json trace = json::parse(recorder.ToJson());
    std::set<uint64_t> turns;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] == "X") turns.insert(event["args"]["turn"].get<uint64_t>());
    }
    return turns;
  };
  EXPECT_EQ(turns_of({.first_turn = 2, .turn_count = 3}), (std::set<uint64_t>{2, 3, 4}));
  EXPECT_EQ(turns_of({.turn_count = 5, .event_count_max = 2 * plan.ops.size() + 1}),
            (std::set<uint64_t>{0, 1}));
  EXPECT_EQ(turns_of({.turn_count = 5, .event_count_max = plan.ops.size() - 1}),
            (std::set<uint64_t>{}));
}

TEST(TraceRecorder, TheFileIsWhatToJsonSays) {
  const RandomCase random_case(3);
  const StepPlan plan = CompileStepPlan(random_case.spec).value();
  TraceRecorder recorder(plan);
  RunTurns(plan, random_case.spec.micro_count, 2, recorder);
  const TempFolder folder;
  const std::string path = folder.path() + "/trace.json";
  ASSERT_TRUE(recorder.WriteTo(path).ok());
  EXPECT_EQ(ReadWholeFile(path), recorder.ToJson());
}

}  // namespace
}  // namespace marea
