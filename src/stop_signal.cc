#include "src/stop_signal.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

namespace marea {
namespace {

// A handler can reach nothing but globals.
std::atomic<TrainingRun*> watched_run{nullptr};
std::atomic<int> signal_count{0};
static_assert(std::atomic<TrainingRun*>::is_always_lock_free);

void Say(std::string_view text) {
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

void OnSignal(int signal) {
  if (signal_count.fetch_add(1) > 0) {
    Say("\nmarea: ended at once\n");
    _exit(128 + signal);
  }
  TrainingRun* run = watched_run.load();
  if (run != nullptr) run->RequestStop();
  Say("\nmarea: ending after this step; a second signal ends at once\n");
}

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignal::StopSignal() {
  signal_count = 0;
  Handle(SIGINT, OnSignal);
  Handle(SIGTERM, OnSignal);
  Handle(SIGPIPE, SIG_IGN);
}

StopSignal::~StopSignal() {
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) Handle(signal, SIG_DFL);
  watched_run = nullptr;
}

void StopSignal::Watch(TrainingRun& run) {
  watched_run = &run;
  if (requested()) run.RequestStop();
}

void StopSignal::Unwatch() {
  watched_run = nullptr;
}

bool StopSignal::requested() const {
  return signal_count.load() > 0;
}

}  // namespace marea
