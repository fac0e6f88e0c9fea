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
  FlagSet set("marea report", "Says what this machine has, what works, and what does not and why.");
  set.Text("--nvme", folder, "PATH", "the folder where I/O is tried; this one if absent");
  set.Switch("--json", json, "JSON on stdout");
  if (const std::optional<int> ended = set.ParseOrEnd(arguments)) return *ended;
  const MachineFacts facts = CollectFacts(folder);
  fmt::print("{}", json ? FactsJson(facts) : FactsText(facts));
  return 0;
}

}  // namespace marea
