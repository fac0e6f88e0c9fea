#include "src/bench/fio_peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/unique_fd.h"
#include "io/units.h"

extern char** environ;

namespace marea {
namespace {

const char* FioWorkload(WorkloadKind kind) {
  switch (kind) {
    case WorkloadKind::kRead:
      return "read";
    case WorkloadKind::kWrite:
      return "write";
    case WorkloadKind::kMixed:
      return "rw";
    case WorkloadKind::kRandomRead:
      return "randread";
    case WorkloadKind::kReplay:
      break;
  }
  MAREA_CHECK(false, "fio knows no plans");
}

// The first line that fio wrote, which says most.
std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Runs a program and collects what it prints. Returns its exit status.
Result<int> Capture(const std::vector<std::string>& words, std::string* output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::Io("pipe", errno);
  UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int spawned =
      ::posix_spawn(&child, words.front().c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) return Status::Io(words.front(), spawned);
  to.Reset();
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(from.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    output->append(buffer, static_cast<size_t>(count));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<std::string> FindFio() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  std::string folder;
  while (std::getline(folders, folder, ':')) {
    std::string program = (folder.empty() ? "." : folder) + "/fio";
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  return Status::InvalidArgument(
      "--compare fio: there is no fio in PATH; install it (Debian, Ubuntu: apt-get install fio)");
}

bool HugePagesFor(const BenchShape& shape) {
  std::ifstream in("/proc/meminfo");
  uint64_t free_pages = 0;
  uint64_t page_bytes = 0;
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string name;
    uint64_t value = 0;
    if (!(fields >> name >> value)) continue;
    if (name == "HugePages_Free:") free_pages = value;
    if (name == "Hugepagesize:") page_bytes = value * kKiB;
  }
  return page_bytes > 0 && free_pages * page_bytes >= 2 * shape.block_bytes * shape.queue_depth;
}

std::vector<std::string> FioArguments(const FioJob& job) {
  std::vector<std::string> words = {job.program,
                                    "--name=compare",
                                    "--filename=" + job.file_name,
                                    fmt::format("--size={}", job.file_bytes),
                                    fmt::format("--bs={}", job.shape.block_bytes),
                                    fmt::format("--iodepth={}", job.shape.queue_depth),
                                    std::string("--rw=") + FioWorkload(job.kind),
                                    "--ioengine=io_uring",
                                    "--fixedbufs=1",
                                    "--registerfiles=1",
                                    "--direct=1",
                                    "--scramble_buffers=0",
                                    "--time_based=1",
                                    fmt::format("--ramp_time={:.0f}ms", job.warm_up_seconds * 1000),
                                    fmt::format("--runtime={:.0f}ms", job.seconds * 1000),
                                    "--allow_file_create=0",
                                    "--output-format=json"};
  if (job.huge_pages) words.emplace_back("--iomem=mmaphuge");
  return words;
}

Result<FioFigure> ParseFioOutput(const std::string& text) {
  const size_t begin = text.find('{');
  const nlohmann::json root =
      begin == std::string::npos
          ? nlohmann::json()
          : nlohmann::json::parse(text.begin() + static_cast<ptrdiff_t>(begin), text.end(), nullptr,
                                  false);
  const auto number = [](const nlohmann::json& object, const char* key) {
    const auto at = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && at != object.end() && at->is_number() ? at->get<double>() : 0;
  };
  if (!root.is_object() || !root.contains("jobs") || !root["jobs"].is_array() ||
      root["jobs"].empty() || !root["jobs"][0].is_object()) {
    return Status::Failed("fio gave no figures: " + FirstLine(text));
  }
  const nlohmann::json& job = root["jobs"][0];
  FioFigure figure;
  for (const char* direction : {"read", "write"}) {
    if (job.contains(direction)) figure.bytes_per_second += number(job[direction], "bw_bytes");
  }
  if (figure.bytes_per_second <= 0) {
    return Status::Failed("fio gave no figures: " + FirstLine(text));
  }
  const double cores = (number(job, "usr_cpu") + number(job, "sys_cpu")) / 100;
  figure.cpu_core_ms_per_gb = cores * 1e3 / (figure.bytes_per_second / 1e9);
  return figure;
}

Result<FioFigure> RunFio(const FioJob& job) {
  std::string output;
  MAREA_ASSIGN_OR_RETURN(const int exit_status, Capture(FioArguments(job), &output));
  if (exit_status != 0) {
    return Status::Failed(
        fmt::format("fio ended with status {}: {}", exit_status, FirstLine(output)));
  }
  return ParseFioOutput(output);
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double FioComparison::ratio() const {
  const double fio = Median(fio_rates);
  return fio > 0 ? Median(marea_rates) / fio : 0;
}

}  // namespace marea
