#include "src/setup_text.h"

#include <set>

#include "src/messages.h"

namespace marea {

TierBytes BudgetBytes(const RunSetup& setup) {
  return {setup.budgets.vram_bytes, setup.budgets.ram_bytes, setup.budgets.nvme_bytes};
}

void PrintFindings(const RunSetup& setup) {
  std::set<std::string> said;
  for (const std::string& warning : setup.warnings) {
    if (said.insert(warning).second) PrintWarning(warning);
  }
  for (const std::string& notice : setup.notices) {
    if (said.insert(notice).second) PrintNote(notice);
  }
}

}  // namespace marea
