// marea train: trains within budgets.
#include <fmt/format.h>

#include <memory>

#include "engine/comm/world.h"
#include "engine/report/run_summary.h"
#include "engine/train/run_setup.h"
#include "engine/train/training_run.h"
#include "src/arguments.h"
#include "src/commands.h"
#include "src/messages.h"
#include "src/progress.h"
#include "src/run_flags.h"
#include "src/setup_text.h"
#include "src/stop_signal.h"

namespace marea {
namespace {

// Ranks but the first say nothing but warnings: rank 0's lines are the run's.
class QuietObserver final : public TrainingObserver {
 public:
  void OnPhase(const std::string& /*phase*/, uint64_t /*done*/, uint64_t /*total*/) override {}
  void OnStep(const StepMetrics& /*metrics*/) override {}
  void OnWarning(const std::string& sentence) override { PrintWarning(sentence); }
  void OnNotice(const std::string& /*sentence*/) override {}
};

Result<RunSummary> Train(const RunSetup& setup, TrainingObserver& observer, StopSignal& stop) {
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingRun> run,
                         TrainingRun::Create(setup, observer));
  if (stop.requested()) return Status::Cancelled("stopped before the first step");
  stop.Watch(*run);
  Result<RunSummary> summary = run->Run();
  stop.Unwatch();
  return summary;
}

int TrainAsFollower(const RunSetup& setup, StopSignal& stop) {
  QuietObserver quiet;
  const Result<RunSummary> summary = Train(setup, quiet, stop);
  return summary.ok() ? 0 : FailWith(summary.status());
}

Result<RunSummary> TrainAsLeader(const RunSetup& setup, StopSignal& stop) {
  ProgressPrinter progress({.steps = setup.steps,
                            .budget_bytes = BudgetBytes(setup),
                            .nvme_used_bytes = setup.planned.nvme_peak_bytes});
  return Train(setup, progress, stop);
}

}  // namespace

int RunTrainCommand(const std::vector<std::string>& arguments) {
  RunFlags flags;
  FlagSet set("marea train", "Trains a model within budgets of VRAM, RAM and NVMe.");
  AddRunFlags(set, flags);
  if (const std::optional<int> ended = set.ParseOrEnd(arguments)) return *ended;
  const Result<RunOptions> options = ToRunOptions(flags, OutputNeed::kFolder);
  if (!options.ok()) return FailWith(options.status());
  const Result<World> world = WorldFromEnvironment();
  if (!world.ok()) return FailWith(world.status());
  const Result<std::unique_ptr<RunSetup>> setup = PrepareRun(options.value(), world.value());
  if (!setup.ok()) return FailWithInput(setup.status());
  // Until the last sentence is out: a launcher that saw another rank fail sends SIGTERM meanwhile.
  StopSignal stop;
  if (world.value().rank != 0) return TrainAsFollower(*setup.value(), stop);
  PrintFindings(*setup.value());
  fmt::print(stderr, "{}", PlacementTable(setup.value()->planned, BudgetBytes(*setup.value())));
  const Result<RunSummary> summary = TrainAsLeader(*setup.value(), stop);
  if (!summary.ok()) return FailWith(summary.status());
  if (flags.json) {
    fmt::print("{}\n", ToJson(summary.value()));
  } else {
    fmt::print("{}", ToTable(summary.value()));
  }
  return 0;
}

}  // namespace marea
