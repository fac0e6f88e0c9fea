// marea report: what this machine has, what works, and what does not and why.
#include <fmt/format.h>

#include "src/arguments.h"
#include "src/commands.h"
#include "src/machine_facts.h"
#include "src/messages.h"

namespace marea {

int RunReportCommand(const std::vector<std::string>& arguments) {
  std::string folder = ".";
  bool json = false;
  CLI::App app("Says what this machine has, what works, and what does not and why.",
               "marea report");
  app.add_option("--nvme", folder, "the folder where I/O is tried; this one if absent")
      ->type_name("PATH");
  app.add_flag("--json", json, "JSON on stdout");
  const Result<ParseOutcome> outcome = ParseArguments(app, arguments);
  if (!outcome.ok()) return FailWith(outcome.status());
  if (outcome.value() == ParseOutcome::kHelp) {
    fmt::print("{}", app.help());
    return 0;
  }
  const MachineFacts facts = CollectFacts(folder);
  fmt::print("{}", json ? FactsJson(facts) : FactsText(facts));
  return 0;
}

}  // namespace marea
