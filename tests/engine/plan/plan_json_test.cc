// plan.json says everything that the plan holds, and a damaged one is refused with its place.
#include "engine/plan/plan_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/plan/plan_text.h"
#include "engine/plan/plan_totals.h"
#include "swap/plan_check.h"
#include "tests/engine/plan/random_plan.h"

namespace marea {
namespace {

using nlohmann::json;

PlannedRun Planned(const RandomCase& random_case) {
  PlannedRun planned;
  planned.spec = random_case.spec;
  planned.plan = CompileStepPlan(random_case.spec).value();
  planned.homes[static_cast<int>(Tier::kRam)][static_cast<int>(ShardKind::kWeight)] = 12345;
  planned.vram_peak_bytes = 1 << 20;
  planned.ram_peak_bytes = 2 << 20;
  planned.nvme_peak_bytes = 3 << 20;
  return planned;
}

void ExpectSamePlan(const StepPlan& a, const StepPlan& b) {
  EXPECT_EQ(a.space_bytes, b.space_bytes);
  EXPECT_EQ(a.lane_depth, b.lane_depth);
  EXPECT_EQ(a.lane_ops, b.lane_ops);
  ASSERT_EQ(a.rings.size(), b.rings.size());
  for (size_t i = 0; i < a.rings.size(); ++i) {
    EXPECT_EQ(a.rings[i].name, b.rings[i].name);
    EXPECT_EQ(a.rings[i].space, b.rings[i].space);
    EXPECT_EQ(a.rings[i].offset, b.rings[i].offset);
    EXPECT_EQ(a.rings[i].bytes, b.rings[i].bytes);
  }
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_EQ(a.buffers[i].space, b.buffers[i].space);
    EXPECT_EQ(a.buffers[i].bytes, b.buffers[i].bytes);
    EXPECT_EQ(a.buffers[i].offset, b.buffers[i].offset);
    EXPECT_EQ(a.buffers[i].ring, b.buffers[i].ring);
    EXPECT_EQ(a.buffers[i].content, b.buffers[i].content);
  }
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < a.ops.size(); ++i) {
    const Op& x = a.ops[i];
    const Op& y = b.ops[i];
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.lane, y.lane);
    EXPECT_EQ(x.when, y.when);
    EXPECT_EQ(x.block, y.block);
    EXPECT_EQ(x.group, y.group);
    EXPECT_EQ(x.chunk, y.chunk);
    EXPECT_EQ(x.micro, y.micro);
    EXPECT_EQ(x.position, y.position);
    EXPECT_EQ(x.accesses, y.accesses);
    EXPECT_EQ(x.waits, y.waits);
  }
}

TEST(PlanJson, APlanComesBackAsItWas) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const RandomCase random_case(seed);
    const PlannedRun planned = Planned(random_case);
    const Result<PlanFile> read = ParsePlan(ToJson(planned), "plan.json");
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status().message();
    const PlanFile& file = read.value();
    ExpectSamePlan(planned.plan, file.plan);
    EXPECT_EQ(file.homes, planned.homes);
    EXPECT_EQ(file.peak_bytes, (TierBytes{1 << 20, 2 << 20, 3 << 20}));
    EXPECT_EQ(file.parameters, random_case.model.parameters);
    EXPECT_EQ(file.micro_count, random_case.spec.micro_count);
    EXPECT_EQ(file.wave_size, random_case.spec.wave_size);
    EXPECT_EQ(file.chunk_elements, random_case.spec.chunk_elements);
    ASSERT_TRUE(CheckPlan(file.plan, file.micro_count).ok()) << "seed " << seed;
  }
}

TEST(PlanJson, NamesModelAndHomes) {
  RandomCase random_case(4);
  random_case.model.groups[0].frozen = true;
  random_case.model.groups[0].name = "embed";
  random_case.spec.placement.home(0, ShardKind::kWeight) = Tier::kNvme;
  const json root = json::parse(ToJson(Planned(random_case)));
  EXPECT_EQ(root["format"], "marea-plan");
  EXPECT_EQ(root["version"], 1);
  EXPECT_EQ(root["groups"].size(), random_case.model.groups.size());
  EXPECT_EQ(root["groups"][0]["name"], "embed");
  EXPECT_EQ(root["groups"][0]["homes"], json({{"weight", "nvme"}}));
  EXPECT_EQ(root["blocks"].size(), random_case.model.blocks.size());
  EXPECT_EQ(root["home_bytes"]["ram"]["weight"], 12345);
}

std::string Refusal(const json& root) {
  const Result<PlanFile> read = ParsePlan(root.dump(), "some/plan.json");
  if (read.ok()) return "";
  EXPECT_EQ(read.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(read.status().message().rfind("some/plan.json", 0), 0u) << read.status().message();
  return read.status().message();
}

TEST(PlanJson, ADamagedFileIsRefusedAtThePlace) {
  const RandomCase random_case(1);
  const json whole = json::parse(ToJson(Planned(random_case)));
  ASSERT_EQ(Refusal(whole), "");
  struct Damage {
    const char* pointer;
    json value;
    const char* expected;
  };
  const Damage damages[] = {
      {"/format", "else", "no plan of marea"},
      {"/version", 2, "version 2"},
      {"/parameters", -1, "\"parameters\""},
      {"/parameters", 1.5, "\"parameters\""},
      {"/spec", json::array(), "\"precision\""},
      {"/buffers", 7, "\"buffers\""},
      {"/buffers/0/space", "disk", "\"disk\""},
      {"/buffers/0/ring", 1000, "buffers[0]"},
      {"/ops/1/kind", "dance", "ops[1]"},
      {"/ops/1/position", 99999, "\"position\""},
      {"/ops/0/accesses", json::array({json::array({999999, 0, 1, "r"})}), "buffer 999999"},
      {"/ops/0/accesses", json::array({json::array({0, 0, 1, ""})}), "neither reads nor writes"},
      {"/ops/0/accesses", json::array({json::array({0, 0, 1})}), "\"accesses\""},
      {"/ops/0/waits", json::array({json::array({"cpu", 99999, 0})}), "cpu #99999"},
      {"/ops/0/waits", json::array({json::array({"cpu", 0, 2})}), "\"waits\""},
      {"/ops/0/block", 5000000000, "\"block\""},
      {"/ops/0", nullptr, "ops[0]"},
  };
  for (const Damage& damage : damages) {
    json broken = whole;
    broken[json::json_pointer(damage.pointer)] = damage.value;
    EXPECT_NE(Refusal(broken).find(damage.expected), std::string::npos)
        << damage.pointer << " = " << damage.value << ": " << Refusal(broken);
  }
  for (const auto& item : whole.items()) {
    if (item.key() == "workspace_bytes" || item.key().ends_with("_home")) continue;
    if (item.key() == "groups" || item.key() == "blocks") continue;  // for people
    json broken = whole;
    broken.erase(item.key());
    EXPECT_NE(Refusal(broken), "") << "without " << item.key();
  }
}

TEST(PlanJson, ACutFileIsRefused) {
  const RandomCase random_case(1);
  const std::string text = ToJson(Planned(random_case));
  for (size_t size = 0; size + 2 < text.size(); size += text.size() / 40) {
    EXPECT_FALSE(ParsePlan(text.substr(0, size), "plan.json").ok()) << size;
  }
}

TEST(PlanTotals, AreThoseOfTheOpsThatRun) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const RandomCase random_case(seed);
    const StepPlan plan = CompileStepPlan(random_case.spec).value();
    const StepMask mask = SteadyTurn(random_case.spec.micro_count);
    const PlannedLanes lanes = CountLanes(plan, mask);
    uint64_t forwards = 0;
    for (const PlannedLane& lane : lanes) {
      uint64_t ops = 0;
      for (const uint32_t count : lane.ops_by_kind) ops += count;
      EXPECT_EQ(ops, lane.op_count);
      forwards += lane.ops_by_kind[static_cast<int>(OpKind::kForward)];
    }
    // Every block but the last goes forward once for each micro-batch.
    EXPECT_EQ(forwards, (random_case.model.blocks.size() - 1) * random_case.spec.micro_count);
    EXPECT_EQ(lanes[static_cast<int>(Lane::kCompute)].bytes, 0u);
    // Both ends of a transfer are as long: the destinations add up to the same.
    const uint64_t read_bytes = lanes[static_cast<int>(Lane::kNvmeRead)].bytes;
    const uint64_t ops_bytes = [&] {
      uint64_t bytes = 0;
      for (const Op& op : plan.ops) {
        if (op.kind == OpKind::kRead && Active(op, mask)) bytes += op.accesses[1].bytes;
      }
      return bytes;
    }();
    EXPECT_EQ(read_bytes, ops_bytes);
  }
}

TEST(PlanText, ShowsTiersLanesAndOps) {
  RandomCase random_case(6);
  for (auto& homes : random_case.spec.placement.homes) homes.fill(Tier::kNvme);
  const RingMinimum least = MinimumRings(random_case.spec);
  random_case.spec.weight_ring_bytes = least.weight_bytes;
  random_case.spec.accumulator_ring_bytes = least.accumulator_bytes;
  random_case.spec.staging_ring_bytes = least.staging_bytes;
  const PlannedRun planned = Planned(random_case);
  const std::string table = PlanTable(planned, {4 << 20, 8 << 20, 16 << 20});
  for (const char* part : {"budget", "predicted", "weight", "vram", "ram", "nvme", "4.00 MiB",
                           "1.00 MiB", "staging", "nvme_read", "forward_backward", "update"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
  const PlanFile file = ParsePlan(ToJson(planned), "plan.json").value();
  const std::string of_file = PlanTable(file);
  EXPECT_EQ(of_file.find("budget"), std::string::npos);
  EXPECT_NE(of_file.find("forward_backward"), std::string::npos);
  const std::string ops = OpsText(planned.plan);
  EXPECT_EQ(static_cast<size_t>(std::count(ops.begin(), ops.end(), '\n')), planned.plan.ops.size());
}

}  // namespace
}  // namespace marea
