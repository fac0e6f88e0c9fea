// Random compiled plans, run by the real executor, swapper and tier store on a virtual clock, with
// every byte that any op reads compared with a serial run; with and without faults.
//
// MAREA_SIMULATION_PLANS sets the number of plans, MAREA_SIMULATION_FIRST the first seed (1), so
// that several processes can share many. A failure names the seed of its case.
#include "tests/engine/plan/simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "engine/plan/plan_compiler.h"
#include "tests/engine/plan/random_plan.h"

namespace marea {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

uint64_t PlanCount() {
  return FromEnvironment("MAREA_SIMULATION_PLANS", 10'000);
}

uint64_t FirstSeed() {
  return FromEnvironment("MAREA_SIMULATION_FIRST", 1);
}

// Trains, evaluates, accumulates fewer micro-batches, in any order; gradients are applied in the
// turn after, and the last turn may do only that.
std::vector<StepMask> RandomMasks(std::mt19937_64& random, uint32_t micro_count) {
  std::vector<StepMask> masks;
  bool pending = false;  // gradients wait to be applied
  bool applied = false;
  const uint64_t turns = 2 + random() % 3;
  while (masks.size() < turns || !applied) {
    const bool eval = random() % 4 == 0;
    const uint32_t count = random() % 3 == 0 ? 1 + random() % micro_count : micro_count;
    masks.push_back({.update = pending, .train = !eval, .eval = eval, .micro_count = count});
    applied |= pending;
    pending = !eval;
  }
  if (pending) masks.push_back({.update = true});
  return masks;
}

SimulationOptions RandomOptions(uint64_t seed) {
  std::mt19937_64 random(seed);
  SimulationOptions options;
  options.seed = random();
  options.path_count = 1 + random() % 2;
  options.slots = 1 + random() % 2;
  options.turns_ahead = 1 + random() % 3;
  options.commits_first = random() % 2 == 0;
  options.delays.seed = random();
  options.delays.usual_max = 1'000u << random() % 12;
  if (seed % 2 == 0) {
    for (const Lane lane : {Lane::kH2d, Lane::kD2h, Lane::kCompute}) {
      options.launch_depth[static_cast<size_t>(lane)] = 1 + random() % 8;
    }
  }
  options.device.latency_min = 0;
  options.device.latency_max = 1'000u << random() % 14;  // up to 8 ms
  options.device.bytes_per_nanosecond = random() % 2 == 0 ? 0.1 : 5;
  if (random() % 2 == 0) {
    options.device.short_transfer_probability = 0.1;
    options.device.eagain_probability = 0.05;
    options.eio_once = true;
  }
  return options;
}

// A seed's plan and what it must read.
struct Case {
  explicit Case(uint64_t seed)
      : random(seed),
        shape(seed),
        plan(CompileStepPlan(shape.spec).value()),
        masks(RandomMasks(random, shape.spec.micro_count)),
        reference(plan, masks, seed) {}
  std::mt19937_64 random;
  RandomCase shape;
  StepPlan plan;
  std::vector<StepMask> masks;
  SerialRun reference;
};

TEST(Simulation, EveryByteThatAnyOpReadsIsTheByteLastWritten) {
  const uint64_t plans = PlanCount();
  uint64_t ops = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + plans; ++seed) {
    const Case one(seed);
    Simulation simulation(one.plan, one.reference, one.masks, RandomOptions(seed));
    const Status status = simulation.Run();
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.message();
    ops += simulation.op_count();
  }
  RecordProperty("plans", std::to_string(plans));
  RecordProperty("ops", std::to_string(ops));
  std::printf("%llu plans, %llu ops\n", static_cast<unsigned long long>(plans),
              static_cast<unsigned long long>(ops));
}

TEST(Simulation, TheSameSeedTakesTheSameCourseAndAnotherReadsTheSameBytes) {
  const uint64_t plans = PlanCount() / 100;
  uint64_t differ = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + plans; ++seed) {
    const Case one(seed);
    const auto trace = [&](uint64_t delays) {
      Simulation simulation(one.plan, one.reference, one.masks, RandomOptions(delays));
      const Status status = simulation.Run();
      EXPECT_TRUE(status.ok()) << "seed " << seed << ", delays " << delays << ": "
                               << status.message();
      return simulation.trace_hash();
    };
    const uint64_t first = trace(seed);
    ASSERT_EQ(trace(seed), first) << "seed " << seed;
    differ += trace(seed + 1'000'000) != first ? 1 : 0;
  }
  EXPECT_EQ(differ, plans);
}

TEST(Simulation, WhatBreaksEndsTheRunWithOneStatusAndNothingInFlight) {
  const uint64_t plans = PlanCount() / 20;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + plans; ++seed) {
    const Case one(seed);
    SimulationOptions options = RandomOptions(seed);
    constexpr Failure kFailures[] = {Failure::kEioAlways, Failure::kBitRot, Failure::kEngineOp,
                                     Failure::kCancel};
    options.failure = kFailures[seed % 4];
    Simulation simulation(one.plan, one.reference, one.masks, options);
    const Status status = simulation.Run();
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.message();
  }
}

}  // namespace
}  // namespace marea
