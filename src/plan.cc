// marea plan: what a run would place where and do in a step. Trains nothing and writes nothing.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "engine/plan/machine_profile.h"
#include "engine/plan/plan_json.h"
#include "engine/plan/step_estimate.h"
#include "engine/train/run_setup.h"
#include "src/arguments.h"
#include "src/commands.h"
#include "src/flag_values.h"
#include "src/messages.h"
#include "src/run_flags.h"
#include "src/setup_text.h"

namespace marea {
namespace {

constexpr uint64_t kRanksMax = 1 << 16;

// Rank 0 of the world that the plan is for; every rank's plan has the same sizes.
Result<World> PlannedWorld(const std::string& world_size, const std::string& ranks_per_node) {
  World world;
  const auto set = [](const char* flag, const std::string& text, uint32_t& value) -> Status {
    if (text.empty()) return Status::Ok();
    MAREA_ASSIGN_OR_RETURN(const uint64_t number, ParseCount(flag, text, 1, kRanksMax));
    value = static_cast<uint32_t>(number);
    return Status::Ok();
  };
  MAREA_RETURN_IF_ERROR(set("--world-size", world_size, world.size));
  world.local_size = world.size;
  MAREA_RETURN_IF_ERROR(set("--gpus-per-node", ranks_per_node, world.local_size));
  if (world.size % world.local_size != 0) {
    return Status::InvalidArgument(fmt::format(
        "--world-size {} is no multiple of --gpus-per-node {}", world.size, world.local_size));
  }
  return world;
}

// None without --machine.
Result<std::optional<MachineProfile>> ProfileOf(const std::string& path) {
  if (path.empty()) return std::optional<MachineProfile>();
  Result<MachineProfile> profile = ReadMachineProfile(path);
  if (!profile.ok()) return profile.status().WithContext("--machine");
  return std::optional<MachineProfile>(std::move(profile).value());
}

StepEstimate EstimateRun(const RunSetup& setup, const MachineProfile& profile) {
  EstimateRequest request{
      .on_gpu = setup.gpu.has_value(), .ranks_per_node = setup.world.local_size, .nvme_paths = {}};
  for (const StorePath& path : setup.store_paths) request.nvme_paths.push_back(path.path);
  return EstimateStep(setup.planned, profile, request);
}

void PrintPlan(const RunSetup& setup, const StepEstimate* estimate, const std::string& machine) {
  fmt::print("{}: {} steps\n{}", setup.options.model_path, setup.steps,
             PlanTable(setup.planned, BudgetBytes(setup), estimate));
  if (estimate != nullptr) {
    fmt::print("\n{}", EstimateText(*estimate, machine));
  } else {
    fmt::print(
        "\n  how long that takes is told with --machine FILE, which\n"
        "  `marea bench --all --nvme PATH --machine-profile FILE` writes\n");
  }
}

}  // namespace

int RunPlanCommand(const std::vector<std::string>& arguments) {
  RunFlags flags;
  bool ops = false;
  FlagSet set("marea plan",
              "Plans a run and trains nothing; the flags are those of `marea train`.");
  AddRunFlags(set, flags);
  std::string world_size, ranks_per_node;
  set.Text("--world-size", world_size, "N", "ranks to plan for; 1 if absent");
  set.Text("--gpus-per-node", ranks_per_node, "N", "of them on a node; all if absent");
  std::string machine;
  set.Text("--machine", machine, "FILE",
           "a machine profile of `marea bench --all`: how long a step takes, and what bounds it");
  set.Switch("--ops", ops, "the ops of a step too, one a line");
  if (const std::optional<int> ended = set.ParseOrEnd(arguments)) return *ended;
  const Result<RunOptions> options = ToRunOptions(flags, OutputNeed::kNone);
  if (!options.ok()) return FailWith(options.status());
  const Result<World> world = PlannedWorld(world_size, ranks_per_node);
  if (!world.ok()) return FailWith(world.status());
  const Result<std::optional<MachineProfile>> profile = ProfileOf(machine);
  if (!profile.ok()) return FailWithInput(profile.status());
  const Result<std::unique_ptr<RunSetup>> prepared = PrepareRun(options.value(), world.value());
  if (!prepared.ok()) return FailWithInput(prepared.status());
  const RunSetup& setup = *prepared.value();
  PrintFindings(setup);
  if (setup.store_paths.size() > 1 && !setup.planned.chunks.entries.empty()) {
    PrintNote(
        fmt::format("chunks are shared between the {} NVMe paths by their speed, which is "
                    "measured when training starts: a plan writes nothing",
                    setup.store_paths.size()));
  }
  std::optional<StepEstimate> estimate;
  if (profile.value().has_value()) estimate = EstimateRun(setup, *profile.value());
  if (flags.json) {  // holds the ops
    fmt::print("{}", ToJson(setup.planned, estimate.has_value() ? EstimateJson(*estimate, machine)
                                                                : std::string()));
    return 0;
  }
  PrintPlan(setup, estimate.has_value() ? &*estimate : nullptr, machine);
  if (ops) fmt::print("\n{}", OpsText(setup.planned.plan));
  return 0;
}

}  // namespace marea
