// A lane's time is its work over the profile's figure, what shares a resource shares its time, and
// what a profile lacks is said and not guessed.
#include "engine/plan/step_estimate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/plan/plan_text.h"
#include "engine/plan/plan_totals.h"
#include "tests/engine/plan/random_plan.h"

namespace marea {
namespace {

MachineProfile RoundProfile() {
  MachineProfile profile;
  for (Measured& figure : profile.figures) figure = Measured::Of(1);
  profile.figure(MachineFigure::kRamCopy) = Measured::Of(400);
  profile.figure(MachineFigure::kAdamW) = Measured::Of(10);
  profile.figure(MachineFigure::kCpuFp32) = Measured::Of(50);
  profile.figure(MachineFigure::kCpuBf16) = Measured::Of(100);
  profile.figure(MachineFigure::kH2d) = Measured::Of(100);
  profile.figure(MachineFigure::kD2h) = Measured::Of(80);
  profile.figure(MachineFigure::kBothH2d) = Measured::Of(50);
  profile.figure(MachineFigure::kBothD2h) = Measured::Of(40);
  profile.figure(MachineFigure::kGpuBf16) = Measured::Of(1000);
  profile.figure(MachineFigure::kAllGather) = Measured::Not("one rank");
  profile.drives = {
      {.path = "a", .model = "", .rates = {20, 10, 10, 5}},
      {.path = "b", .model = "", .rates = {40, 20, 20, 10}},
  };
  profile.drives_together = DriveRates{60, 30, 30, 15};
  return profile;
}

double Seconds(const StepEstimate& estimate, Lane lane) {
  return estimate.lanes[static_cast<int>(lane)].seconds.value_or(-1);
}
const std::string& Reason(const StepEstimate& estimate, Lane lane) {
  return estimate.lanes[static_cast<int>(lane)].reason;
}

// One layer and a head of which a step reads 200 bytes, writes 50, copies 300 in and 80 out, and
// updates 60 parameters on the CPU: 30 an update, weights of 2 bytes.
class StepEstimateTest : public testing::Test {
 protected:
  StepEstimateTest() {
    model_.groups.resize(2);
    model_.blocks.push_back({.name = "layer", .kind = BlockKind::kLayer, .groups = {0}});
    model_.blocks.push_back({.name = "head", .kind = BlockKind::kHead, .groups = {1}});
    model_.blocks[0].forward_flops = 100;
    model_.blocks[0].recomputed_flops = 80;
    model_.blocks[1].forward_flops = 50;
    model_.blocks[1].recomputed_flops = 50;
    planned_.spec.model = &model_;
    planned_.spec.micro_count = 2;
    for (uint32_t i = 0; i < 2; ++i) Add(OpKind::kRead, Lane::kNvmeRead, 100);
    Add(OpKind::kWrite, Lane::kNvmeWrite, 50);
    Add(OpKind::kCopyIn, Lane::kH2d, 300);
    Add(OpKind::kCopyOut, Lane::kD2h, 80);
    for (uint32_t i = 0; i < 2; ++i) Add(OpKind::kUpdate, Lane::kCpu, 60);
    for (uint32_t micro = 0; micro < 3; ++micro) {  // the third is of no steady step
      Add(OpKind::kForward, Lane::kCompute, 1, 0, micro);
      Add(OpKind::kForwardBackward, Lane::kCompute, 1, 1, micro);
      Add(OpKind::kBackward, Lane::kCompute, 1, 0, micro);
    }
    Add(OpKind::kHeadEval, Lane::kCompute, 1, 1, 0);
    planned_.plan.ops.back().when = When::kIfEval;
  }

  void Add(OpKind kind, Lane lane, uint64_t bytes, uint32_t block = kNone, uint32_t micro = kNone) {
    Op op{.kind = kind, .lane = lane, .block = block, .micro = micro};
    op.accesses.push_back({0, 0, bytes, AccessMode::kRead});
    planned_.plan.ops.push_back(op);
  }

  StepEstimate Estimate(const EstimateRequest& request) const {
    return EstimateStep(planned_, profile_, request);
  }

  ModelShape model_;
  PlannedRun planned_;
  MachineProfile profile_ = RoundProfile();
};

TEST_F(StepEstimateTest, WorkOverFiguresOnAGpu) {
  const StepEstimate estimate = Estimate({.on_gpu = true, .nvme_paths = {"a"}});
  // 10 s of both at 10 and 5; what is left to read goes at 20.
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kNvmeWrite), 10);
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kNvmeRead), 10 + 100 / 20.0);
  // 2 s of both at 50 and 40, then 200 bytes at 100.
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kD2h), 2);
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kH2d), 2 + 200 / 100.0);
  // Two micro-batches: forward, backward that computes again, and the head's both.
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kCompute), 2 * (100 + 280 + 150) / 1000.0);
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kCpu), 60 / 10.0);
  EXPECT_EQ(Seconds(estimate, Lane::kComm), 0);  // no work: the missing figure is not missed
  EXPECT_EQ(estimate.bound_by, Lane::kNvmeRead);
  EXPECT_DOUBLE_EQ(estimate.step_seconds, 15);
  EXPECT_EQ(estimate.cpu_seconds, 0);
}

TEST_F(StepEstimateTest, OnTheCpuItsLanesAddUp) {
  const StepEstimate estimate = Estimate({.on_gpu = false, .nvme_paths = {"b"}});
  // Each byte is read and written: 200 a second alone, 100 beside another copy.
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kD2h), 0.8);
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kH2d), 0.8 + 220 / 200.0);
  EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kCompute), 10.6);
  EXPECT_DOUBLE_EQ(estimate.cpu_seconds, 10.6 + 6 + 0.8 + 1.9);
  EXPECT_DOUBLE_EQ(estimate.step_seconds, estimate.cpu_seconds);
  EXPECT_EQ(estimate.bound_by, Lane::kCompute);
}

TEST_F(StepEstimateTest, AProcessorWithoutBf16ComputesInFp32) {
  profile_.figure(MachineFigure::kCpuBf16) = Measured::Not("no AVX-512");
  EXPECT_DOUBLE_EQ(Seconds(Estimate({.nvme_paths = {"a"}}), Lane::kCompute), 1060 / 50.0);
}

TEST_F(StepEstimateTest, RanksShareDrivesAndProcessorButNoGpu) {
  const StepEstimate one = Estimate({.on_gpu = true, .nvme_paths = {"a"}});
  const StepEstimate four = Estimate({.on_gpu = true, .ranks_per_node = 4, .nvme_paths = {"a"}});
  for (const Lane lane : {Lane::kNvmeRead, Lane::kNvmeWrite, Lane::kCpu}) {
    EXPECT_DOUBLE_EQ(Seconds(four, lane), 4 * Seconds(one, lane)) << LaneName(lane);
  }
  for (const Lane lane : {Lane::kH2d, Lane::kD2h, Lane::kCompute}) {
    EXPECT_DOUBLE_EQ(Seconds(four, lane), Seconds(one, lane)) << LaneName(lane);
  }
  EXPECT_DOUBLE_EQ(Estimate({.ranks_per_node = 4, .nvme_paths = {"a"}}).cpu_seconds,
                   4 * Estimate({.nvme_paths = {"a"}}).cpu_seconds);
}

TEST_F(StepEstimateTest, DrivesAreThoseOfThePlan) {
  const auto read_seconds = [&](const std::vector<std::string>& paths) {
    return Seconds(Estimate({.on_gpu = true, .nvme_paths = paths}), Lane::kNvmeRead);
  };
  EXPECT_DOUBLE_EQ(read_seconds({"b"}), 5 + 100 / 40.0);
  EXPECT_DOUBLE_EQ(read_seconds({"x", "y"}), 50 / 15.0 + 100 / 60.0);
  EXPECT_EQ(read_seconds({"x"}), -1);
  EXPECT_EQ(read_seconds({"a", "b", "c"}), -1);
  profile_.drives.pop_back();
  EXPECT_DOUBLE_EQ(read_seconds({"of another machine"}), 15);
}

TEST_F(StepEstimateTest, ARanksOwnPartDoesNotTravel) {
  profile_.figure(MachineFigure::kAllGather) = Measured::Of(30);
  planned_.spec.partition.world_size = 4;
  Add(OpKind::kGather, Lane::kComm, 400);
  Add(OpKind::kReduceScatter, Lane::kComm, 800);
  EXPECT_DOUBLE_EQ(Seconds(Estimate({.on_gpu = true, .nvme_paths = {"a"}}), Lane::kComm),
                   (300 + 600) / 30.0);
}

TEST_F(StepEstimateTest, WhatIsMissingIsSaidAndNotGuessed) {
  profile_.drives.clear();
  profile_.drives_together.reset();
  profile_.no_drives_reason = "no --nvme PATH was given";
  profile_.figure(MachineFigure::kBothD2h) = Measured::Not("no GPU here");
  planned_.spec.partition.world_size = 2;
  Add(OpKind::kGather, Lane::kComm, 7);
  const StepEstimate estimate = Estimate({.on_gpu = true, .nvme_paths = {"a"}});
  EXPECT_EQ(Reason(estimate, Lane::kNvmeRead), "no --nvme PATH was given");
  EXPECT_EQ(Reason(estimate, Lane::kH2d), "no GPU here");
  EXPECT_EQ(Reason(estimate, Lane::kComm), "one rank");
  EXPECT_EQ(estimate.bound_by, Lane::kCpu);
  EXPECT_DOUBLE_EQ(estimate.step_seconds, 6);
  const std::string text = EstimateText(estimate, "m.json");
  for (const char* part :
       {"at least 6 s", "m.json", "cpu bounds it",
        "not in it: nvme_write: no --nvme PATH was given", "not in it: comm: one rank"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  const auto json = nlohmann::json::parse(EstimateJson(estimate, "m.json"));
  EXPECT_EQ(json["machine"], "m.json");
  EXPECT_EQ(json["bound_by"], "cpu");
  EXPECT_EQ(json["step_seconds_min"], 6.0);
  EXPECT_TRUE(json["lane_seconds"]["h2d"].is_null());
  EXPECT_EQ(json["not_told"]["h2d"], "no GPU here");
  EXPECT_FALSE(json["not_told"].contains("cpu"));
}

TEST_F(StepEstimateTest, AProfileWithoutFiguresTellsNothing) {
  for (Measured& figure : profile_.figures) figure = Measured::Not("not yet");
  planned_.spec.precision = Precision::kFp32;
  const StepEstimate estimate = Estimate({.on_gpu = true, .nvme_paths = {"x", "y", "z"}});
  EXPECT_FALSE(estimate.bound_by.has_value());
  EXPECT_EQ(estimate.step_seconds, 0);
  EXPECT_NE(Reason(estimate, Lane::kCompute).find("fp32"), std::string::npos);
  EXPECT_NE(EstimateText(estimate, "m.json").find("tells no lane's time"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(EstimateJson(estimate, "m"))["step_seconds_min"].is_null());
}

// Of compiled plans: a lane takes no less than its bytes need alone, and no longer than they need
// while both directions are busy all the time.
TEST(StepEstimateOfPlans, ALaneLiesBetweenItsTwoRates) {
  const MachineProfile profile = RoundProfile();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomCase random_case(seed);
    PlannedRun planned;
    planned.spec = random_case.spec;
    planned.plan = CompileStepPlan(random_case.spec).value();
    const PlannedLanes lanes = CountLanes(planned.plan, SteadyTurn(planned.spec.micro_count));
    const StepEstimate estimate =
        EstimateStep(planned, profile, {.on_gpu = true, .nvme_paths = {"a"}});
    const auto expect_between = [&](Lane lane, double alone, double both) {
      const auto bytes = static_cast<double>(lanes[static_cast<int>(lane)].bytes);
      EXPECT_GE(Seconds(estimate, lane) * (1 + 1e-9), bytes / alone) << seed << LaneName(lane);
      EXPECT_LE(Seconds(estimate, lane), bytes / both * (1 + 1e-9)) << seed << LaneName(lane);
    };
    expect_between(Lane::kNvmeRead, 20, 10);
    expect_between(Lane::kNvmeWrite, 10, 5);
    expect_between(Lane::kH2d, 100, 50);
    expect_between(Lane::kD2h, 80, 40);
    double parameters = 0;
    for (uint32_t group = 0; group < random_case.model.groups.size(); ++group) {
      if (random_case.model.groups[group].frozen || UpdatesOnGpu(planned.spec, group)) continue;
      parameters += static_cast<double>(OwnedBytes(planned.spec, group, ShardKind::kMoment1)) /
                    static_cast<double>(ElementBytes(planned.spec, ShardKind::kMoment1));
    }
    EXPECT_DOUBLE_EQ(Seconds(estimate, Lane::kCpu), parameters / 10) << seed;
    const std::string table = PlanTable(planned, {1, 1, 1}, &estimate);
    EXPECT_NE(table.find("seconds"), std::string::npos);
  }
}

}  // namespace
}  // namespace marea
