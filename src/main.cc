// marea: trains models that are larger than memory. Names the commands and hands over to one.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "engine/report/version.h"
#include "src/arguments.h"
#include "src/commands.h"
#include "src/messages.h"
#include "src/wait_policy.h"

namespace marea {
namespace {

struct Command {
  const char* name;
  const char* purpose;
  int (*run)(const std::vector<std::string>& arguments);
};

constexpr Command kCommands[] = {
    {"train", "train a model within budgets of VRAM, RAM and NVMe", RunTrainCommand},
    {"plan", "say what a run would place where and do in a step, and train nothing",
     RunPlanCommand},
    {"bench", "measure what NVMe drives and the machine give a training run", RunBenchCommand},
    {"inspect", "describe an arena, a model folder, a safetensors file or a plan",
     RunInspectCommand},
    {"report", "say what this machine has, what works, and what does not and why",
     RunReportCommand},
    {"launch", "start a command as the ranks of one node, a process each", RunLaunchCommand},
};

std::string HelpText() {
  std::string text = fmt::format(
      "marea {}: trains models that are larger than memory\n\nUsage: marea COMMAND [FLAGS]\n\n",
      Version());
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<9} {}\n", command.name, command.purpose);
  }
  return text + "\n`marea COMMAND --help` lists a command's flags.\n";
}

int Dispatch(const std::vector<std::string>& words) {
  if (words.empty()) {
    PrintError("which command? train, plan, bench, inspect, report or launch (`marea --help`)");
    return ExitCode(ErrorCode::kInvalidArgument);
  }
  const std::string& name = words.front();
  if (name == "--help" || name == "-h" || name == "help") {
    fmt::print("{}", HelpText());
    return 0;
  }
  if (name == "--version") {
    fmt::print("marea {}\n", Version());
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run({words.begin() + 1, words.end()});
    names.emplace_back(command.name);
  }
  return FailWith(Status::InvalidArgument(
      fmt::format("there is no command '{}'; the nearest is {} (`marea --help` lists them)", name,
                  NearestName(name, names))));
}

// Libraries may throw where marea does not: the user sees a sentence, never a terminated process.
int Guarded(const std::vector<std::string>& words) {
  try {
    return Dispatch(words);
  } catch (const std::bad_alloc&) {
    PrintError("the system gave no more memory; lower --ram or free some");
  } catch (const std::exception& error) {
    PrintError(fmt::format("failed in a way that marea did not foresee ({}); please report it",
                           error.what()));
  }
  return ExitCode(ErrorCode::kFailed);
}

}  // namespace
}  // namespace marea

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "train") marea::SleepWhenWaiting(argv);
  const int status = marea::Guarded({argv + 1, argv + argc});
  // A full disk or a closed pipe behind stdout is a failure that would go unseen.
  if (std::fflush(stdout) != 0 && status == 0) {
    marea::PrintError("the output could not be written to stdout");
    return marea::ExitCode(marea::ErrorCode::kIo);
  }
  return status;
}
