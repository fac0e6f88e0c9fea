#include "tests/engine/comm/rank_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "engine/comm/network.h"

namespace marea {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// In a child: where its words go.
int g_to_parent = -1;
constexpr char kEndOfWord = '\1';

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<size_t>(count);
  }
}

}  // namespace

uint16_t FreePort() {
  return ListenOn(0).value().port;
}

World LocalWorld(uint32_t rank, uint32_t size, uint16_t port) {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.master_port = port;
  return world;
}

RankProcesses::~RankProcesses() {
  for (Process& process : processes_) {
    if (process.reaped) continue;
    ::kill(process.id, SIGKILL);
    ::waitpid(process.id, nullptr, 0);
  }
}

size_t RankProcesses::Start(std::function<std::string()> body) {
  int ends[2];
  MAREA_CHECK(::pipe(ends) == 0, "no pipe");
  std::fflush(nullptr);
  Process process;
  process.started = steady_clock::now();
  process.id = ::fork();
  MAREA_CHECK(process.id >= 0, "no child");
  if (process.id == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    g_to_parent = ends[1];
    WriteAll(g_to_parent, body());
    std::fflush(nullptr);
    ::_exit(0);
  }
  ::close(ends[1]);
  process.from = UniqueFd(ends[0]);
  processes_.push_back(std::move(process));
  return processes_.size() - 1;
}

void RankProcesses::Signal(size_t index, int signal_number) {
  ::kill(processes_[index].id, signal_number);
}

void RankProcesses::Say(const std::string& word) {
  WriteAll(g_to_parent, word + kEndOfWord);
}

bool RankProcesses::ReadMore(Process& process, milliseconds wait) {
  pollfd look{process.from.get(), POLLIN, 0};
  if (::poll(&look, 1, static_cast<int>(wait.count())) <= 0) return true;
  char buffer[4096];
  const ssize_t count = ::read(process.from.get(), buffer, sizeof(buffer));
  if (count <= 0) return false;
  process.said.append(buffer, static_cast<size_t>(count));
  return true;
}

bool RankProcesses::Heard(size_t index, const std::string& word) {
  Process& process = processes_[index];
  const auto deadline = steady_clock::now() + std::chrono::seconds(20);
  while (process.said.find(word + kEndOfWord) == std::string::npos) {
    if (steady_clock::now() > deadline || !ReadMore(process, milliseconds(50))) return false;
  }
  return true;
}

RankProcesses::End RankProcesses::Wait(size_t index, milliseconds limit) {
  Process& process = processes_[index];
  const auto deadline = steady_clock::now() + limit;
  bool running = true;
  while (running && steady_clock::now() < deadline) running = ReadMore(process, milliseconds(20));
  if (running) ::kill(process.id, SIGKILL);
  int status = 0;
  ::waitpid(process.id, &status, 0);
  process.reaped = true;
  End end;
  end.seconds = std::chrono::duration<double>(steady_clock::now() - process.started).count();
  const size_t words = process.said.rfind(kEndOfWord);
  end.text = words == std::string::npos ? process.said : process.said.substr(words + 1);
  if (running) {
    end.text = "still running";
  } else if (WIFSIGNALED(status)) {
    end.text += "signal " + std::to_string(WTERMSIG(status));
  }
  return end;
}

std::vector<std::string> RunRanks(uint32_t size, const RankBody& body,
                                  const RankGroupOptions& options) {
  RankProcesses processes;
  const uint16_t port = FreePort();
  for (uint32_t rank = 0; rank < size; ++rank) {
    processes.Start([&, rank]() -> std::string {
      auto group = RankGroup::Join(LocalWorld(rank, size, port), options);
      if (!group.ok()) return group.status().message();
      const std::string text = body(*group.value());
      if (!text.empty()) return text;
      return group.value()->Leave().message();
    });
  }
  std::vector<std::string> texts;
  for (uint32_t rank = 0; rank < size; ++rank)
    texts.push_back(processes.Wait(rank, std::chrono::seconds(120)).text);
  return texts;
}

}  // namespace marea
