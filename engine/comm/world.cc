#include "engine/comm/world.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

namespace marea {
namespace {

// Ports that SLURM jobs take from their number: below the range that Linux hands out by itself.
constexpr uint64_t kSlurmPortFirst = 15000;
constexpr uint64_t kSlurmPortCount = 15000;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads numbers and names the variable in every complaint.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> Text(const std::string& name) const {
    std::optional<std::string> text = variables_(name);
    if (text && text->empty()) return std::nullopt;
    return text;
  }
  bool Has(const std::string& name) const { return Text(name).has_value(); }

  Result<uint64_t> Number(const std::string& name, uint64_t maximum, const char* because) const {
    const std::optional<std::string> text = Text(name);
    if (!text) {
      return Status::InvalidArgument(fmt::format(
          "{} is not set although {}: start all ranks with torchrun, srun or marea launch", name,
          because));
    }
    const std::optional<uint64_t> value = ParseNumber(*text);
    if (!value || *value > maximum) {
      return Status::InvalidArgument(
          fmt::format("{}={} is not a whole number from 0 to {}", name, *text, maximum));
    }
    return *value;
  }

 private:
  const Variables& variables_;
};

constexpr uint64_t kRanksMax = 1u << 20;

Status CheckPlace(const World& world, const char* rank_name, const char* size_name,
                  const char* local_rank_name, const char* local_size_name) {
  if (world.size == 0) return Status::InvalidArgument(fmt::format("{}=0: at least 1", size_name));
  if (world.rank >= world.size) {
    return Status::InvalidArgument(
        fmt::format("{}={} is not below {}={}", rank_name, world.rank, size_name, world.size));
  }
  if (world.local_size == 0 || world.local_size > world.size) {
    return Status::InvalidArgument(fmt::format("{}={} does not lie from 1 to {}={}",
                                               local_size_name, world.local_size, size_name,
                                               world.size));
  }
  if (world.local_rank >= world.local_size) {
    return Status::InvalidArgument(fmt::format("{}={} is not below {}={}", local_rank_name,
                                               world.local_rank, local_size_name,
                                               world.local_size));
  }
  return Status::Ok();
}

Status ReadMasterPort(const Reader& reader, const char* because, World& world) {
  MAREA_ASSIGN_OR_RETURN(const uint64_t port, reader.Number("MASTER_PORT", 65535, because));
  if (port == 0) return Status::InvalidArgument("MASTER_PORT=0: name a free port, e.g. 29500");
  world.master_port = static_cast<uint16_t>(port);
  return Status::Ok();
}

Result<World> FromTorchrun(const Reader& reader) {
  World world;
  const char* because = reader.Has("RANK") ? "RANK is" : "WORLD_SIZE is";
  MAREA_ASSIGN_OR_RETURN(const uint64_t rank, reader.Number("RANK", kRanksMax, because));
  MAREA_ASSIGN_OR_RETURN(const uint64_t size, reader.Number("WORLD_SIZE", kRanksMax, because));
  world.rank = static_cast<uint32_t>(rank);
  world.size = static_cast<uint32_t>(size);
  if (size > 1 || reader.Has("LOCAL_RANK")) {
    MAREA_ASSIGN_OR_RETURN(const uint64_t value, reader.Number("LOCAL_RANK", kRanksMax, because));
    world.local_rank = static_cast<uint32_t>(value);
  }
  if (size > 1 || reader.Has("LOCAL_WORLD_SIZE")) {
    MAREA_ASSIGN_OR_RETURN(const uint64_t value,
                           reader.Number("LOCAL_WORLD_SIZE", kRanksMax, because));
    world.local_size = static_cast<uint32_t>(value);
  }
  MAREA_RETURN_IF_ERROR(CheckPlace(world, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"));
  if (size == 1) return world;
  const std::optional<std::string> address = reader.Text("MASTER_ADDR");
  if (!address) {
    return Status::InvalidArgument(
        "MASTER_ADDR is not set although WORLD_SIZE is above 1: name rank 0's machine");
  }
  world.master_address = *address;
  MAREA_RETURN_IF_ERROR(ReadMasterPort(reader, "WORLD_SIZE is above 1", world));
  if (reader.Has("TORCHELASTIC_RESTART_COUNT")) {
    MAREA_ASSIGN_OR_RETURN(
        const uint64_t restart,
        reader.Number("TORCHELASTIC_RESTART_COUNT", std::numeric_limits<uint32_t>::max(), ""));
    world.restart = static_cast<uint32_t>(restart);
  }
  const std::string agent = reader.Text("TORCHELASTIC_USE_AGENT_STORE").value_or("False");
  world.agent_store = agent == "True" || agent == "true" || agent == "1";
  return world;
}

// The first machine of a list such as "gpu[03-10,12]-ib,cpu1": gpu03-ib.
std::string FirstHost(const std::string& list) {
  const size_t open = list.find('[');
  const size_t comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const size_t close = list.find(']', open);
  if (close == std::string::npos) return list.substr(0, open);
  const std::string numbers = list.substr(open + 1, close - open - 1);
  const std::string rest = list.substr(close + 1);
  return list.substr(0, open) + numbers.substr(0, numbers.find_first_of("-,")) +
         rest.substr(0, rest.find(','));
}

// The entry of node `index` in counts such as "4(x2),3": 4, 4, 3.
std::optional<uint64_t> TasksOfNode(std::string_view counts, uint64_t index) {
  while (!counts.empty()) {
    const std::string_view entry = counts.substr(0, counts.find(','));
    counts.remove_prefix(std::min(counts.size(), entry.size() + 1));
    const size_t open = entry.find("(x");
    uint64_t times = 1;
    if (open != std::string_view::npos) {
      if (entry.back() != ')') return std::nullopt;
      const auto parsed = ParseNumber(entry.substr(open + 2, entry.size() - open - 3));
      if (!parsed) return std::nullopt;
      times = *parsed;
    }
    if (index < times) return ParseNumber(entry.substr(0, open));
    index -= times;
  }
  return std::nullopt;
}

Result<uint32_t> SlurmLocalSize(const Reader& reader, uint32_t size) {
  if (reader.Text("SLURM_STEP_NUM_NODES")
          .value_or(reader.Text("SLURM_JOB_NUM_NODES").value_or("")) == "1") {
    return size;
  }
  uint64_t node = 0;
  if (reader.Has("SLURM_NODEID")) {
    MAREA_ASSIGN_OR_RETURN(node, reader.Number("SLURM_NODEID", kRanksMax, ""));
  }
  for (const char* name :
       {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}) {
    const std::optional<std::string> counts = reader.Text(name);
    if (!counts) continue;
    const bool uniform = std::string_view(name) == "SLURM_NTASKS_PER_NODE";
    const std::optional<uint64_t> tasks = TasksOfNode(*counts, uniform ? 0 : node);
    if (!tasks || *tasks > kRanksMax) {
      return Status::InvalidArgument(
          fmt::format("{}={} does not say how many ranks node {} has", name, *counts, node));
    }
    return static_cast<uint32_t>(*tasks);
  }
  return Status::InvalidArgument(
      "SLURM_TASKS_PER_NODE is not set although SLURM_NTASKS is above 1: start the ranks with "
      "srun");
}

// srun numbers the steps of a job; the batch script itself is none of them.
bool IsJobStep(const Reader& reader) {
  constexpr uint64_t kStepsMax = 0xfffffff0;  // above are SLURM's own, the batch script among them
  if (reader.Has("SLURM_STEP_NUM_TASKS")) return true;
  const std::optional<std::string> step = reader.Text("SLURM_STEP_ID");
  const std::optional<uint64_t> number = step ? ParseNumber(*step) : std::nullopt;
  return number && *number < kStepsMax;
}

// One rank, unless the job has more: they would never come.
Result<World> FromBatchScript(const Reader& reader) {
  const std::string tasks = reader.Text("SLURM_NTASKS").value_or("1");
  if (tasks == "1") return World{};
  return Status::InvalidArgument(
      fmt::format("this is the batch script of a SLURM job of {} tasks, and no rank of it: start "
                  "the ranks with "
                  "srun, or one rank with env -u SLURM_PROCID",
                  tasks));
}

Result<World> FromSlurm(const Reader& reader) {
  World world;
  const char* because = "SLURM_PROCID is";
  MAREA_ASSIGN_OR_RETURN(const uint64_t rank, reader.Number("SLURM_PROCID", kRanksMax, because));
  const char* size_name =
      reader.Has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  MAREA_ASSIGN_OR_RETURN(const uint64_t size, reader.Number(size_name, kRanksMax, because));
  world.rank = static_cast<uint32_t>(rank);
  world.size = static_cast<uint32_t>(size);
  if (size > 1) {
    MAREA_ASSIGN_OR_RETURN(const uint64_t local,
                           reader.Number("SLURM_LOCALID", kRanksMax, because));
    world.local_rank = static_cast<uint32_t>(local);
    MAREA_ASSIGN_OR_RETURN(world.local_size, SlurmLocalSize(reader, world.size));
  }
  MAREA_RETURN_IF_ERROR(
      CheckPlace(world, "SLURM_PROCID", size_name, "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"));
  if (size == 1) return world;
  if (const auto address = reader.Text("MASTER_ADDR")) {
    world.master_address = *address;
  } else {
    std::optional<std::string> nodes = reader.Text("SLURM_STEP_NODELIST");
    if (!nodes) nodes = reader.Text("SLURM_JOB_NODELIST");
    if (!nodes) nodes = reader.Text("SLURM_NODELIST");
    if (!nodes) {
      return Status::InvalidArgument(
          "neither MASTER_ADDR nor SLURM_JOB_NODELIST is set: name rank 0's machine");
    }
    world.master_address = FirstHost(*nodes);
  }
  if (reader.Has("MASTER_PORT")) {
    MAREA_RETURN_IF_ERROR(ReadMasterPort(reader, because, world));
    return world;
  }
  MAREA_ASSIGN_OR_RETURN(
      const uint64_t job,
      reader.Number("SLURM_JOB_ID", std::numeric_limits<uint32_t>::max(), "MASTER_PORT is not"));
  world.master_port = static_cast<uint16_t>(kSlurmPortFirst + job % kSlurmPortCount);
  return world;
}

}  // namespace

Result<World> WorldFromVariables(const Variables& variables) {
  const Reader reader(variables);
  if (reader.Has("RANK") || reader.Has("WORLD_SIZE")) return FromTorchrun(reader);
  if (reader.Has("SLURM_PROCID")) {
    return IsJobStep(reader) ? FromSlurm(reader) : FromBatchScript(reader);
  }
  return World{};
}

Result<World> WorldFromEnvironment() {
  return WorldFromVariables([](const std::string& name) -> std::optional<std::string> {
    const char* text = std::getenv(name.c_str());
    if (text == nullptr) return std::nullopt;
    return std::string(text);
  });
}

}  // namespace marea
