// The compiler over random cases: every plan is proved, and every one of its waits is needed.
#include "engine/plan/plan_compiler.h"

#include <gtest/gtest.h>

#include "swap/plan_check.h"
#include "tests/engine/plan/random_plan.h"

namespace marea {
namespace {

constexpr uint64_t kCases = 300;

Result<StepPlan> Compile(const RandomCase& random_case) {
  return CompileStepPlan(random_case.spec);
}

TEST(PlanCompiler, EveryPlanIsProvedAtItsLeastRingsAndAbove) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const RandomCase random_case(seed);
    Result<StepPlan> plan = Compile(random_case);
    ASSERT_TRUE(plan.ok()) << "seed " << seed << ": " << plan.status().message();
    const Status status = CheckPlan(plan.value(), random_case.spec.micro_count);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.message();
  }
}

TEST(PlanCompiler, RemovingAnyOneWaitIsCaught) {
  uint64_t removed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const RandomCase random_case(seed);
    StepPlan plan = Compile(random_case).value();
    for (Op& op : plan.ops) {
      for (size_t i = 0; i < op.waits.size(); ++i) {
        const std::vector<Wait> kept = op.waits;
        op.waits.erase(op.waits.begin() + static_cast<ptrdiff_t>(i));
        ASSERT_FALSE(CheckRaces(plan).ok()) << "seed " << seed << " " << Describe(plan, op);
        op.waits = kept;
        ++removed;
      }
    }
  }
  EXPECT_GT(removed, 5000u);
}

TEST(PlanCompiler, TheSameSpecGivesTheSamePlan) {
  const RandomCase random_case(7);
  const StepPlan a = Compile(random_case).value();
  const StepPlan b = Compile(random_case).value();
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < a.ops.size(); ++i) {
    EXPECT_EQ(Describe(a, a.ops[i]), Describe(b, b.ops[i]));
  }
}

TEST(PlanCompiler, ARingThatIsTooSmallIsNamedWithWhatIsMissing) {
  RandomCase random_case(3);
  for (auto& homes : random_case.spec.placement.homes) homes.fill(Tier::kNvme);
  random_case.spec.staging_ring_bytes = kPageBytes;
  const Result<StepPlan> plan = Compile(random_case);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_NE(plan.status().message().find("staging"), std::string::npos);
}

TEST(PlanCompiler, AFrozenGroupHasAWeightAndNothingElse) {
  RandomCase random_case(5);
  for (GroupShape& group : random_case.model.groups) group.frozen = false;
  random_case.model.groups[1].frozen = true;
  const StepPlan plan = Compile(random_case).value();
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.content.group != 1) continue;
    EXPECT_EQ(buffer.content.kind, ShardKind::kWeight);
  }
  for (const Op& op : plan.ops) {
    if (op.group != 1) continue;
    EXPECT_TRUE(op.kind == OpKind::kRead || op.kind == OpKind::kCopyIn);
  }
}

// What is broken on purpose must be found: the checks are worth nothing otherwise.
class BrokenPlan : public ::testing::Test {
 protected:
  BrokenPlan() {
    for (auto& homes : case_.spec.placement.homes) homes.fill(Tier::kNvme);
    case_.spec.placement.partial = Tier::kRam;
    const RingMinimum least = MinimumRings(case_.spec);
    case_.spec.weight_ring_bytes = 2 * least.weight_bytes;
    case_.spec.accumulator_ring_bytes = least.accumulator_bytes;
    case_.spec.staging_ring_bytes = 2 * least.staging_bytes;
    plan_ = Compile(case_).value();
  }
  Op& First(OpKind kind) {
    for (Op& op : plan_.ops) {
      if (op.kind == kind && op.group != kNone && !case_.model.groups[op.group].frozen) return op;
    }
    ADD_FAILURE() << "no " << OpKindName(kind);
    return plan_.ops[0];
  }
  RandomCase case_{11};
  StepPlan plan_;
};

TEST_F(BrokenPlan, AWriteBackThatIsLeftOutIsAnOldVersion) {
  First(OpKind::kWrite).when = When::kIfEval;
  EXPECT_FALSE(CheckPlan(plan_, case_.spec.micro_count).ok());
}

TEST_F(BrokenPlan, AReadIntoTheWrongPlaceIsFound) {
  Op& read = First(OpKind::kRead);
  plan_.buffers[read.accesses[1].buffer].content.first_byte += kPageBytes;
  EXPECT_FALSE(CheckPlan(plan_, case_.spec.micro_count).ok());
}

TEST_F(BrokenPlan, ABufferOutsideItsRingIsFound) {
  plan_.buffers[First(OpKind::kRead).accesses[1].buffer].offset = UINT64_MAX / 2;
  EXPECT_FALSE(CheckBounds(plan_).ok());
}

TEST_F(BrokenPlan, TwoLiveValuesInOnePlaceAreFound) {
  Op& update = First(OpKind::kUpdate);
  plan_.buffers[update.accesses[1].buffer].offset = plan_.buffers[update.accesses[0].buffer].offset;
  EXPECT_FALSE(CheckPlan(plan_, case_.spec.micro_count).ok());
}

}  // namespace
}  // namespace marea
