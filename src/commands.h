// The commands of `marea`. Each takes the words behind its name, prints results on stdout and
// everything else on stderr, and returns the exit status.
#pragma once

#include <string>
#include <vector>

namespace marea {

int RunTrainCommand(const std::vector<std::string>& arguments);
int RunPlanCommand(const std::vector<std::string>& arguments);
int RunBenchCommand(const std::vector<std::string>& arguments);
int RunInspectCommand(const std::vector<std::string>& arguments);
int RunLaunchCommand(const std::vector<std::string>& arguments);
int RunReportCommand(const std::vector<std::string>& arguments);

}  // namespace marea
