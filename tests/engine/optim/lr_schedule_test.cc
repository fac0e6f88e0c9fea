// The tables were worked out apart from the code, in 40 decimal digits, from the definitions of
// DeepSpeed's schedulers with update k at iteration k - 1.
#include "engine/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace marea {
namespace {

struct Point {
  uint64_t update;
  double rate;
};

void ExpectTable(const LrSchedule& schedule, double base, const std::vector<Point>& points) {
  ASSERT_TRUE(CheckLrSchedule(schedule).ok()) << CheckLrSchedule(schedule).message();
  for (const Point& point : points) {
    EXPECT_NEAR(LearningRate(schedule, point.update, base), point.rate, 1e-15 + 1e-12 * point.rate)
        << "update " << point.update;
  }
}

TEST(LrScheduleTest, Constant) {
  ExpectTable({}, 2e-4, {{0, 2e-4}, {1, 2e-4}, {100000, 2e-4}});
}

TEST(LrScheduleTest, WarmupLog) {
  LrSchedule schedule;
  schedule.kind = LrScheduleKind::kWarmup;
  schedule.warmup_min_lr = 1e-5;
  schedule.warmup_max_lr = 1e-3;
  schedule.warmup_num_steps = 10;
  ExpectTable(schedule, 0.5,
              {{0, 1e-5},
               {1, 1e-5},
               {2, 0.0003080196957073414},
               {3, 0.0004823500421724658},
               {6, 0.0007803697378798072},
               {10, 1e-3},
               {11, 1e-3},
               {50, 1e-3}});
}

TEST(LrScheduleTest, WarmupLinearUpToTheOptimizersRate) {
  LrSchedule schedule;
  schedule.kind = LrScheduleKind::kWarmup;
  schedule.warmup_type = WarmupType::kLinear;
  schedule.warmup_num_steps = 4;
  ExpectTable(schedule, 3e-4,
              {{0, 0.0}, {1, 0.0}, {2, 7.5e-5}, {3, 1.5e-4}, {4, 2.25e-4}, {5, 3e-4}, {9, 3e-4}});
}

TEST(LrScheduleTest, AWarmupOfLessThanTwoStepsCountsAsTwo) {
  for (const int64_t steps : {0, 1, 2}) {
    LrSchedule schedule;
    schedule.kind = LrScheduleKind::kWarmup;
    schedule.warmup_num_steps = steps;
    ExpectTable(schedule, 1e-3, {{0, 0.0}, {1, 0.0}, {2, 1e-3}, {3, 1e-3}});
  }
}

TEST(LrScheduleTest, WarmupDecay) {
  LrSchedule schedule;
  schedule.kind = LrScheduleKind::kWarmupDecay;
  schedule.warmup_type = WarmupType::kLinear;
  schedule.warmup_min_lr = 1e-4;
  schedule.warmup_max_lr = 2e-3;
  schedule.warmup_num_steps = 5;
  schedule.total_num_steps = 20;
  ExpectTable(schedule, 0.5,
              {{0, 1e-4},
               {1, 1e-4},
               {3, 0.00086},
               {5, 0.00162},
               {6, 0.002},
               {7, 0.0018733333333333334},
               {14, 0.0009866666666666667},
               {20, 0.00022666666666666666},
               {21, 1e-4},
               {40, 1e-4}});
  // The default maximum is not the optimizer's rate.
  schedule.warmup_max_lr.reset();
  EXPECT_NEAR(LearningRate(schedule, 6, 0.5), 1e-3, 1e-15);
}

TEST(LrScheduleTest, WarmupCosine) {
  LrSchedule schedule;
  schedule.kind = LrScheduleKind::kWarmupCosine;
  schedule.warmup_num_steps = 4;
  schedule.total_num_steps = 16;
  schedule.warmup_min_ratio = 0.1;
  schedule.cos_min_ratio = 0.01;
  ExpectTable(schedule, 6e-4,
              {{0, 0.0},
               {1, 6e-5},
               {2, 0.00033},
               {4, 0.0006},
               {5, 0.0005898799704078533},
               {6, 0.0005602095449239783},
               {9, 0.0003798692563954487},
               {15, 1.6120029592146718e-05},
               {16, 6e-6},
               {17, 6e-6},
               {30, 6e-6}});
}

TEST(LrScheduleTest, FewerTotalStepsThanWarmupSteps) {
  LrSchedule schedule;
  schedule.kind = LrScheduleKind::kWarmupCosine;
  schedule.warmup_num_steps = 10;
  schedule.total_num_steps = 3;
  EXPECT_TRUE(CheckLrSchedule(schedule).ok());
  EXPECT_NEAR(LearningRate(schedule, 11, 1.0), 0.0001, 1e-15);
  schedule.kind = LrScheduleKind::kWarmupDecay;
  EXPECT_EQ(LearningRate(schedule, 11, 1.0), 0.0);
}

TEST(LrScheduleTest, BadKeysAreNamed) {
  const auto message = [](auto change) {
    LrSchedule schedule;
    schedule.kind = LrScheduleKind::kWarmupDecay;
    schedule.total_num_steps = 10;
    change(schedule);
    const Status status = CheckLrSchedule(schedule);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    return status.message();
  };
  const auto expect_named = [](const std::string& text, const char* key) {
    EXPECT_NE(text.find(key), std::string::npos) << text;
  };
  expect_named(message([](LrSchedule& s) { s.total_num_steps = 0; }), "total_num_steps");
  expect_named(message([](LrSchedule& s) { s.warmup_num_steps = -1; }), "warmup_num_steps");
  expect_named(message([](LrSchedule& s) { s.warmup_min_lr = -1e-9; }), "warmup_min_lr");
  expect_named(
      message([](LrSchedule& s) { s.warmup_max_lr = std::numeric_limits<double>::infinity(); }),
      "warmup_max_lr");
  expect_named(message([](LrSchedule& s) {
                 s.kind = LrScheduleKind::kWarmupCosine;
                 s.cos_min_ratio = std::numeric_limits<double>::quiet_NaN();
               }),
               "cos_min_ratio");
}

}  // namespace
}  // namespace marea
