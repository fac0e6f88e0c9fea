// marea plan: what a run would place where and do in a step. Trains nothing and writes nothing.
#include <fmt/format.h>

#include "engine/plan/plan_json.h"
#include "engine/train/run_setup.h"
#include "src/arguments.h"
#include "src/commands.h"
#include "src/messages.h"
#include "src/run_flags.h"
#include "src/setup_text.h"

namespace marea {

int RunPlanCommand(const std::vector<std::string>& arguments) {
  RunFlags flags;
  bool ops = false;
  CLI::App app("Plans a run and trains nothing; the flags are those of `marea train`.",
               "marea plan");
  AddRunFlags(app, flags);
  app.add_flag("--ops", ops, "the ops of a step too, one a line");
  const Result<ParseOutcome> outcome = ParseArguments(app, arguments);
  if (!outcome.ok()) return FailWith(outcome.status());
  if (outcome.value() == ParseOutcome::kHelp) {
    fmt::print("{}", app.help());
    return 0;
  }
  const Result<RunOptions> options = ToRunOptions(flags, OutputNeed::kNone);
  if (!options.ok()) return FailWith(options.status());
  const Result<std::unique_ptr<RunSetup>> prepared = PrepareRun(options.value());
  if (!prepared.ok()) return FailWithInput(prepared.status());
  const RunSetup& setup = *prepared.value();
  PrintFindings(setup);
  if (flags.json) {  // holds the ops
    fmt::print("{}", ToJson(setup.planned));
    return 0;
  }
  fmt::print("{}: {} steps\n{}", setup.options.model_path, setup.steps,
             PlanTable(setup.planned, BudgetBytes(setup)));
  if (ops) fmt::print("\n{}", OpsText(setup.planned.plan));
  return 0;
}

}  // namespace marea
