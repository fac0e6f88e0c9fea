// Plans of several ranks: what they must share, and what a stage saves.
#include <gtest/gtest.h>

#include <tuple>

#include "engine/plan/plan_compiler.h"
#include "swap/lane_order.h"
#include "swap/plan_check.h"
#include "tests/engine/plan/random_plan.h"

namespace marea {
namespace {

// A case of its own for a world of ranks, all else as the seed has it.
struct RankCase {
  RankCase(uint64_t seed, const Partition& partition) : base(seed) {
    PadGroups(partition.world_size, base.model);
    base.spec.partition = partition;
    const RingMinimum least = MinimumRings(base.spec);
    base.spec.weight_ring_bytes = 2 * least.weight_bytes;
    base.spec.accumulator_ring_bytes = 2 * least.accumulator_bytes;
    base.spec.staging_ring_bytes = 2 * least.staging_bytes;
    base.spec.activation_ring_bytes = 2 * least.activation_bytes;
    base.spec.optimizer_ring_bytes = 2 * least.optimizer_bytes;
  }
  StepPlan Compile() const {
    Result<StepPlan> plan = CompileStepPlan(base.spec);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return std::move(plan).value();
  }
  RandomCase base;
};

// A collective as the other ranks see it.
using Collective = std::tuple<OpKind, When, uint32_t, uint32_t, uint64_t>;

std::vector<Collective> CollectivesOf(const StepPlan& plan) {
  std::vector<Collective> all;
  for (const uint32_t index : plan.lane_ops[static_cast<int>(Lane::kComm)]) {
    const Op& op = plan.ops[index];
    all.emplace_back(op.kind, op.when, op.group, op.micro, op.accesses.back().bytes);
  }
  return all;
}

uint64_t HomeBytes(const StepPlan& plan, ShardKind kind) {
  uint64_t bytes = 0;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.ring == kHomeRing && buffer.content.kind == kind) bytes += buffer.bytes;
  }
  return bytes;
}

// For every op of a turn after others: through where in its lane comm is complete as the op starts.
std::vector<int64_t> CommBefore(const StepPlan& plan) {
  constexpr int kTurns = 3;
  const int comm = static_cast<int>(Lane::kComm);
  const auto count = [&](Lane lane) {
    return static_cast<int64_t>(plan.lane_ops[static_cast<int>(lane)].size());
  };
  LaneOrder order(plan.lane_depth);
  std::vector<int64_t> before(plan.ops.size());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      LaneClock start = order.BaseOf(plan.ops[i].lane);
      for (const Wait& wait : plan.ops[i].waits) {
        const int64_t position = (turn - wait.steps_back) * count(wait.lane) + wait.position;
        if (position >= 0) Join(start, order.AtRetirement(wait.lane, position));
      }
      before[i] = start[comm] - turn * count(Lane::kComm);
      order.Append(plan.ops[i].lane, start);
    }
  }
  return before;
}

constexpr uint32_t kStages = 4;

TEST(PlanRanks, AllRanksCallTheSameCollectivesInTheSameOrder) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      const uint32_t world = 2 + seed % 3;
      std::vector<Collective> first;
      for (uint32_t rank = 0; rank < world; ++rank) {
        const RankCase one(seed, {world, rank, stage, 0});
        const StepPlan plan = one.Compile();
        const Status status = CheckPlan(plan, one.base.spec.micro_count);
        ASSERT_TRUE(status.ok()) << "seed " << seed << " stage " << stage << " rank " << rank
                                 << ": " << status.message();
        if (rank == 0) first = CollectivesOf(plan);
        ASSERT_EQ(CollectivesOf(plan), first) << "seed " << seed << " stage " << stage;
      }
      ASSERT_FALSE(first.empty());
    }
  }
}

// A block's backward runs while the sums of the block above are scattered: it waits for none of
// them, nor for a gather behind them. Returns how many pairs of ops were looked at.
uint64_t ExpectNoWaitForScatters(const ModelShape& model, const StepPlan& plan) {
  const std::vector<int64_t> before = CommBefore(plan);
  const auto elements = [&](uint32_t block) {
    uint64_t sum = 0;
    for (const uint32_t group : model.blocks[block].groups) sum += model.groups[group].elements;
    return sum;
  };
  uint64_t pairs = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind != OpKind::kBackward || op.block == 0) continue;
    for (const Op& other : plan.ops) {
      const bool above = other.kind == OpKind::kReduceScatter && other.block == op.block + 1;
      if (!above || elements(op.block) > elements(op.block + 1)) continue;
      EXPECT_LT(before[i], other.position)
          << Describe(plan, op) << " waits for " << Describe(plan, other);
      ++pairs;
    }
  }
  return pairs;
}

TEST(PlanRanks, BackwardWaitsForNoScatterOfTheBlockAbove) {
  uint64_t pairs = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " stage " << stage);
      RankCase one(seed, {2, 1, stage, 0});
      one.base.spec.weight_ring_bytes *= 2;
      one.base.spec.accumulator_ring_bytes *= 2;
      pairs += ExpectNoWaitForScatters(one.base.model, one.Compile());
    }
  }
  EXPECT_GT(pairs, 100u);
}

// Rings as the planner sizes them, for layers larger than what is around them: a value of another
// size, the head's or the embedding's, must not split the ring.
TEST(PlanRanks, BackwardWaitsForNoScatterWhereBlocksDifferInSize) {
  constexpr uint32_t kLayers = 4;
  for (const uint64_t around : {1u, 2u, 3u, 4u}) {
    ModelShape model;
    const auto add = [&](BlockKind kind, uint64_t size) {
      GroupShape group;
      group.elements = group.parameters = 4 * kGroupAlignElements * size;
      model.groups.push_back(group);
      BlockShape block;
      block.name = "block";
      block.kind = kind;
      block.groups = {static_cast<uint32_t>(model.groups.size() - 1)};
      block.input_bytes = block.output_bytes = 4096;
      model.blocks.push_back(block);
    };
    add(BlockKind::kEmbedding, around);
    for (uint32_t layer = 0; layer < kLayers; ++layer) add(BlockKind::kLayer, 4);
    add(BlockKind::kHead, around);
    PlanSpec spec;
    spec.model = &model;
    spec.partition = {2, 1, 3, 0};
    spec.placement.homes.resize(model.groups.size());
    for (auto& homes : spec.placement.homes) homes.fill(Tier::kRam);
    const RingMinimum least = MinimumRings(spec);
    spec.weight_ring_bytes = 3 * least.weight_bytes;
    spec.accumulator_ring_bytes = 2 * least.accumulator_bytes;
    spec.staging_ring_bytes = 4 * least.staging_bytes;
    Result<StepPlan> plan = CompileStepPlan(spec);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    SCOPED_TRACE(testing::Message() << "around " << around);
    EXPECT_GE(ExpectNoWaitForScatters(model, plan.value()), kLayers - 1);
  }
}

TEST(PlanRanks, WhatAStagePartitionsFallsAsTheNumberOfRanks) {
  constexpr ShardKind kStates[] = {ShardKind::kMasterLow, ShardKind::kMoment1, ShardKind::kMoment2};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const uint32_t world : {2u, 3u, 4u, 8u}) {
      const StepPlan whole = RankCase(seed, {world, 0, 0, 0}).Compile();
      for (uint32_t stage = 1; stage < kStages; ++stage) {
        const StepPlan plan = RankCase(seed, {world, world - 1, stage, 0}).Compile();
        for (const ShardKind kind : kStates) {
          EXPECT_EQ(HomeBytes(plan, kind) * world, HomeBytes(whole, kind));
        }
        EXPECT_EQ(HomeBytes(plan, ShardKind::kGradient) * world,
                  HomeBytes(whole, ShardKind::kGradient));
        EXPECT_EQ(HomeBytes(plan, ShardKind::kWeight) * (stage == 3 ? world : 1),
                  HomeBytes(whole, ShardKind::kWeight));
      }
    }
  }
}

TEST(PlanRanks, SmallGroupsStayWholeAtStageThree) {
  const RankCase all(4, {2, 1, 3, UINT64_MAX});
  EXPECT_EQ(HomeBytes(all.Compile(), ShardKind::kWeight),
            HomeBytes(RankCase(4, {2, 1, 2, 0}).Compile(), ShardKind::kWeight));
}

// The same chunks at every stage, so that every stage does the same arithmetic on them.
TEST(PlanRanks, ARankUpdatesTheSameElementsAtEveryStageThatPartitions) {
  const auto updates = [](const StepPlan& plan) {
    std::vector<std::tuple<uint32_t, uint32_t, uint64_t>> all;
    for (const Op& op : plan.ops) {
      if (op.kind == OpKind::kUpdate) all.emplace_back(op.group, op.chunk, op.accesses[0].bytes);
    }
    return all;
  };
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto first = updates(RankCase(seed, {3, 2, 1, 0}).Compile());
    for (const uint32_t stage : {2u, 3u}) {
      EXPECT_EQ(updates(RankCase(seed, {3, 2, stage, 0}).Compile()), first);
    }
  }
}

TEST(PlanRanks, PartsAreEqualWholePagesThatCoverTheGroup) {
  for (const uint32_t world : {1u, 2u, 3u, 7u, 64u}) {
    ModelShape model;
    for (const uint64_t elements : {2048u, 4096u, 2048u * 63}) {
      GroupShape group;
      group.elements = group.parameters = elements;
      model.groups.push_back(group);
    }
    PadGroups(world, model);
    for (const GroupShape& group : model.groups) {
      uint64_t next = 0;
      for (uint32_t rank = 0; rank < world; ++rank) {
        const ElementRange part = PartOf({world, rank, 3, 0}, group, rank);
        EXPECT_EQ(part.first, next);
        EXPECT_EQ(part.count % kGroupAlignElements, 0u);
        next += part.count;
      }
      EXPECT_EQ(next, group.elements);
      EXPECT_GE(group.elements, group.parameters);
    }
  }
}

}  // namespace
}  // namespace marea
