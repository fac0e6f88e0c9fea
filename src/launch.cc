// marea launch: the ranks of one node, each a process of this program.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "src/arguments.h"
#include "src/commands.h"
#include "src/flag_values.h"
#include "src/launch/hostfile.h"
#include "src/launch/process_group.h"
#include "src/launch/rank_plan.h"
#include "src/messages.h"

namespace marea {
namespace {

constexpr const char* kUsage = "marea launch --gpus N -- train FLAGS";

// As written; an empty text was not given.
struct LaunchFlags {
  std::string gpus, nodes, node_rank, master_address, master_port, hostfile, grace;
};

void AddLaunchFlags(FlagSet& set, LaunchFlags& flags) {
  set.Text("--gpus,--ranks,--nproc-per-node", flags.gpus, "N", "ranks of each node");
  set.Text("--nodes,--nnodes", flags.nodes, "N", "nodes of the run; 1 if absent");
  set.Text("--node-rank", flags.node_rank, "K", "which of them this is, from 0");
  set.Text("--master-addr", flags.master_address, "HOST", "of node 0, where the ranks meet");
  set.Text("--master-port", flags.master_port, "PORT",
           "there; a free one if absent, 29500 with several nodes");
  set.Text(
      "--hostfile", flags.hostfile, "FILE",
      "lines \"HOST slots=N\" in place of --gpus and --nodes; without --node-rank it prints what "
      "to run on each");
  set.Text("--grace", flags.grace, "SECONDS",
           "for the others to end when a rank has failed; 20 if absent");
  set.Footer("Behind `--` stands the command that every rank runs:\n  " + std::string(kUsage));
}

Result<std::vector<Host>> NodesOf(const LaunchFlags& flags) {
  if (!flags.hostfile.empty()) {
    if (!flags.gpus.empty() || !flags.nodes.empty()) {
      return Status::InvalidArgument(
          "--hostfile says how many nodes and ranks there are: leave out --gpus and --nodes");
    }
    return ReadHostfile(flags.hostfile);
  }
  if (flags.gpus.empty()) {
    return Status::InvalidArgument(
        fmt::format("--gpus N must be given: `{}` (`--help` lists all flags)", kUsage));
  }
  MAREA_ASSIGN_OR_RETURN(const uint64_t ranks,
                         ParseCount("--gpus", flags.gpus, 1, kRanksOfHostMax));
  uint64_t nodes = 1;
  if (!flags.nodes.empty()) {
    MAREA_ASSIGN_OR_RETURN(nodes, ParseCount("--nodes", flags.nodes, 1, 4096));
  }
  if (nodes > 1 && (flags.node_rank.empty() || flags.master_address.empty())) {
    return Status::InvalidArgument(
        fmt::format("--nodes {} needs --node-rank K, other on each node, and --master-addr HOST, "
                    "the same on all",
                    nodes));
  }
  return std::vector<Host>(nodes, Host{"", static_cast<uint32_t>(ranks)});
}

Result<RankPlan> PlanOf(const LaunchFlags& flags, const std::vector<Host>& nodes) {
  uint64_t node_rank = 0, port = 0;
  if (!flags.node_rank.empty()) {
    MAREA_ASSIGN_OR_RETURN(node_rank,
                           ParseCount("--node-rank", flags.node_rank, 0, nodes.size() - 1));
  }
  std::string address = flags.master_address;
  if (address.empty()) address = nodes.size() > 1 ? nodes.front().name : "127.0.0.1";
  if (!flags.master_port.empty()) {
    MAREA_ASSIGN_OR_RETURN(port, ParseCount("--master-port", flags.master_port, 1, 65535));
  } else if (nodes.size() > 1) {
    port = kMasterPortOfNodes;
  } else {
    MAREA_ASSIGN_OR_RETURN(port, FreePort());
  }
  return PlanRanks(nodes, static_cast<uint32_t>(node_rank), std::move(address),
                   static_cast<uint16_t>(port));
}

// What to run on each host, on stdout: there is no remote shell here.
int PrintHostCommands(const LaunchFlags& flags, const std::vector<Host>& nodes,
                      const std::vector<std::string>& command) {
  PrintNote(fmt::format("run each of these {} commands on its host, with {} there as well",
                        nodes.size(), flags.hostfile));
  for (size_t node = 0; node < nodes.size(); ++node) {
    std::vector<std::string> words = {"marea",        "launch",      "--hostfile",
                                      flags.hostfile, "--node-rank", std::to_string(node)};
    const auto pass_on = [&](const char* flag, const std::string& value) {
      if (!value.empty()) words.insert(words.end(), {flag, value});
    };
    pass_on("--master-addr", flags.master_address);
    pass_on("--master-port", flags.master_port);
    pass_on("--grace", flags.grace);
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    fmt::print("{}: {}\n", nodes[node].name, ShellText(words));
  }
  return 0;
}

Status NoCommand() {
  return Status::InvalidArgument(
      fmt::format("what shall each rank run? A command stands behind `--`: `{}`", kUsage));
}

bool AsksForHelp(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

Status CheckCommand(const std::vector<std::string>& command) {
  if (std::getenv("TORCHELASTIC_RUN_ID") != nullptr) {
    return Status::InvalidArgument(
        "marea launch runs under torchrun, which starts the ranks itself: leave one of both out");
  }
  if (command.empty()) return NoCommand();
  if (command.front() == "launch") {
    return Status::InvalidArgument("a rank cannot be a launch: the command behind `--` is train");
  }
  return Status::Ok();
}

Result<int> Launch(const LaunchFlags& flags, const std::vector<std::string>& command) {
  MAREA_RETURN_IF_ERROR(CheckCommand(command));
  ProcessGroupOptions options;
  options.executable = "/proc/self/exe";
  options.words = command;
  if (!flags.grace.empty()) {
    MAREA_ASSIGN_OR_RETURN(const uint64_t grace, ParseCount("--grace", flags.grace, 0, 86400));
    options.grace_seconds = static_cast<double>(grace);
  }
  MAREA_ASSIGN_OR_RETURN(const std::vector<Host> nodes, NodesOf(flags));
  MAREA_ASSIGN_OR_RETURN(const RankPlan plan, PlanOf(flags, nodes));
  if (nodes.size() > 1 && flags.node_rank.empty()) {
    return PrintHostCommands(flags, nodes, command);
  }
  for (uint32_t local = 0; local < plan.local_ranks; ++local) {
    options.ranks.push_back({plan.first_rank + local, RankVariables(plan, local)});
  }
  // Machine-readable output stays so: rank 0 writes it.
  options.prefix_stdout = std::find(command.begin(), command.end(), "--json") == command.end();
  return RunRanks(options);
}

}  // namespace

int RunLaunchCommand(const std::vector<std::string>& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  std::vector<std::string> command;
  if (dashes != arguments.end()) command.assign(dashes + 1, arguments.end());
  LaunchFlags flags;
  FlagSet set("marea launch", "Starts a command as the ranks of one node.");
  AddLaunchFlags(set, flags);
  // The words of a command without its `--` are no flags of this one.
  if (dashes == arguments.end() && !AsksForHelp(arguments)) return FailWith(NoCommand());
  if (const std::optional<int> ended = set.ParseOrEnd({arguments.begin(), dashes})) return *ended;
  const Result<int> status = Launch(flags, command);
  return status.ok() ? status.value() : FailWith(status.status());
}

}  // namespace marea
