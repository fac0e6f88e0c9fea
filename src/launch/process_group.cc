#include "src/launch/process_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>

#include "src/launch/line_output.h"
#include "src/launch/rank_process.h"

namespace marea {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

Clock::time_point After(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Signals arrive through a descriptor while this lives; the thread's mask is given back after, and
// SIGINT and SIGTERM are ignored from then on: the process is about to end.
class SignalInbox {
 public:
  SignalInbox() {
    sigset_t set;
    sigemptyset(&set);
    // A shell's background job has SIGINT ignored: the ranks are asked to end all the same.
    for (const int number : {SIGINT, SIGTERM}) signal(number, SIG_DFL);
    for (const int number : kEndingSignals) sigaddset(&set, number);
    sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &before_);
    signal(SIGPIPE, SIG_IGN);  // a closed output is seen where it is written
    fd_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalInbox() {
    // All ranks have ended: one that comes too late changes the outcome no more.
    for (const int number : {SIGINT, SIGTERM}) signal(number, SIG_IGN);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    signal(SIGPIPE, SIG_DFL);
  }
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& before() const { return before_; }
  // 0 if there is none.
  int Next() const {
    signalfd_siginfo info = {};
    return read(fd(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_;
  UniqueFd fd_;
};

std::string SignalText(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number)
                         : fmt::format("signal {} (SIG{})", number, name);
}

// What most often lies behind a signal that the user did not send.
const char* UsualCause(int number) {
  switch (number) {
    case SIGKILL:
      return ": out of memory is the usual cause, see dmesg";
    case SIGBUS:
      return ": a full or failing disk behind a mapped file is the usual cause";
    case SIGSEGV:
    case SIGABRT:
    case SIGILL:
    case SIGFPE:
      return ": this is a bug, please report it with its lines above";
    default:
      return "";
  }
}

struct Stream {
  UniqueFd fd;
  LineSplitter lines;
  OutputQueue* queue;
};

struct Rank {
  uint32_t number;
  ChildProcess process;
  Stream streams[2];
};

struct Ending {
  uint32_t rank;
  int status;  // as waitpid gives it
};

class ProcessGroup {
 public:
  explicit ProcessGroup(const ProcessGroupOptions& options) : options_(options) {}
  // Only after a start that failed midway is anything left to kill.
  ~ProcessGroup() {
    SendToAll(SIGKILL);
    for (Rank& rank : ranks_) rank.process.ReapKilled();
  }
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  Result<int> Run() {
    if (inbox_.fd() < 0) return Status::Io("signalfd", errno);
    MAREA_RETURN_IF_ERROR(StartAll());
    while (!abandoned_ && (RunningCount() > 0 || !out_.empty() || !err_.empty())) {
      WaitForSomething();
      TakeSignals();
      ReapAll();
      ActOnDeadlines();
    }
    if (out_.failed() && exit_status_ == 0) {
      return Status::Io("the ranks' output could not be written to stdout", EIO);
    }
    return exit_status_;
  }

 private:
  Status StartAll() {
    const bool piped = options_.ranks.size() > 1;
    ranks_.reserve(options_.ranks.size());
    for (const RankProcess& each : options_.ranks) {
      ChildOutputs outputs;
      Result<ChildProcess> process = ChildProcess::Start(
          options_.executable, options_.words, each.variables, piped, inbox_.before(), outputs);
      if (!process.ok()) {
        return process.status().WithContext(fmt::format("rank {} was not started", each.rank));
      }
      const std::string prefix = fmt::format("[{}] ", each.rank);
      ranks_.push_back(
          {each.rank,
           std::move(process).value(),
           {{std::move(outputs.out), LineSplitter(options_.prefix_stdout ? prefix : ""), &out_},
            {std::move(outputs.err), LineSplitter(prefix), &err_}}});
    }
    return Status::Ok();
  }

  size_t RunningCount() const {
    return static_cast<size_t>(std::count_if(
        ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.process.running(); }));
  }

  void SendToAll(int number) {
    for (Rank& rank : ranks_) rank.process.Send(number);
  }

  // Reads once what poll announced, or all there is.
  static void Read(Stream& stream, bool all) {
    char buffer[1 << 16];
    while (stream.fd.valid()) {
      const ssize_t bytes = read(stream.fd.get(), buffer, sizeof(buffer));
      if (bytes > 0) {
        stream.lines.Feed({buffer, static_cast<size_t>(bytes)}, stream.queue->text());
        if (!all) return;
      } else if (bytes == 0) {
        stream.fd.Reset();
      } else if (errno != EINTR) {
        return;
      }
    }
  }

  int MillisecondsToDeadline() const {
    const Clock::time_point next = std::min(terminate_at_, kill_at_);
    if (RunningCount() == 0 || next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
  }

  void WaitForSomething() {
    std::vector<pollfd> polled = {{inbox_.fd(), POLLIN, 0}};
    std::vector<Stream*> streams;
    for (OutputQueue* queue : {&out_, &err_}) {
      polled.push_back({queue->empty() ? -1 : queue->fd(), POLLOUT, 0});
    }
    const size_t first_stream = polled.size();
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) {
        if (!stream.fd.valid() || stream.queue->full()) continue;
        polled.push_back({stream.fd.get(), POLLIN, 0});
        streams.push_back(&stream);
      }
    }
    if (poll(polled.data(), polled.size(), MillisecondsToDeadline()) <= 0) return;
    if (polled[1].revents != 0) out_.Pump();
    if (polled[2].revents != 0) err_.Pump();
    for (size_t i = 0; i < streams.size(); ++i) {
      if (polled[first_stream + i].revents != 0) Read(*streams[i], false);
    }
  }

  void TakeSignals() {
    while (const int number = inbox_.Next()) {
      if (number == SIGCHLD) continue;
      if (number == SIGTSTP) {
        SendToAll(SIGSTOP);
        raise(SIGSTOP);
        SendToAll(SIGCONT);
        continue;
      }
      if (RunningCount() == 0) abandoned_ = true;  // only a reader that stands still is left
      SendToAll(number);
      if (++user_signals_ > 1 && kill_at_ == Clock::time_point::max()) {
        kill_at_ = After(options_.kill_seconds);
      }
    }
  }

  void ReapAll() {
    std::vector<Ending> failures;
    for (Rank& rank : ranks_) {
      const std::optional<int> status = rank.process.Reap();
      if (!status) continue;
      for (Stream& stream : rank.streams) {
        Read(stream, true);
        stream.lines.End(stream.queue->text());
        stream.fd.Reset();
      }
      if (WIFSIGNALED(*status) && rank.process.WasSent(WTERMSIG(*status))) {
        TakeOwnSignal(WTERMSIG(*status));
      } else if (*status != 0) {
        failures.push_back({rank.number, *status});
      }
    }
    // Of those that came together, one that was killed is the cause, not the consequence.
    std::stable_partition(failures.begin(), failures.end(),
                          [](const Ending& each) { return WIFSIGNALED(each.status); });
    for (const Ending& each : failures) TakeFailure(each);
  }

  // The rank ended by a signal from here: the user's, or what follows a failure.
  void TakeOwnSignal(int number) {
    if (!failed_ && user_signals_ > 0 && exit_status_ == 0) exit_status_ = 128 + number;
  }

  void TakeFailure(const Ending& ending) {
    const bool killed = WIFSIGNALED(ending.status);
    const int code = killed ? 1 : WEXITSTATUS(ending.status);
    if (killed) {
      const int number = WTERMSIG(ending.status);
      Say(fmt::format("rank {} was killed by {}{}", ending.rank, SignalText(number),
                      UsualCause(number)));
    } else if (!failed_ && !(user_signals_ > 0 && code > 128)) {
      Say(fmt::format("rank {} failed with exit status {}", ending.rank, code));
    }
    if (failed_) return;
    failed_ = true;
    exit_status_ = code;
    terminate_at_ = After(options_.grace_seconds);
  }

  void ActOnDeadlines() {
    if (RunningCount() == 0) return;
    const Clock::time_point now = Clock::now();
    if (now >= terminate_at_) {
      terminate_at_ = Clock::time_point::max();
      Say(
          fmt::format("{} still there {:g} s after the first failure: SIGTERM, and SIGKILL in "
                      "{:g} s",
                      RunningText(), options_.grace_seconds, options_.kill_seconds));
      SendToAll(SIGTERM);
      kill_at_ = std::min(kill_at_, After(options_.kill_seconds));
    }
    if (now >= kill_at_) {
      kill_at_ = Clock::time_point::max();
      Say(fmt::format("{} killed: {:g} s after being asked to end there was no answer",
                      RunningText(), options_.kill_seconds));
      SendToAll(SIGKILL);
    }
  }

  // "rank 1 is", "ranks 0, 2 are"
  std::string RunningText() const {
    std::vector<uint32_t> running;
    for (const Rank& rank : ranks_) {
      if (rank.process.running()) running.push_back(rank.number);
    }
    return fmt::format("rank{} {} {}", running.size() > 1 ? "s" : "", fmt::join(running, ", "),
                       running.size() > 1 ? "are" : "is");
  }

  // In line with what the ranks write.
  void Say(const std::string& sentence) { err_.text() += "marea: " + sentence + "\n"; }

  const ProcessGroupOptions& options_;
  SignalInbox inbox_;
  OutputQueue out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  std::vector<Rank> ranks_;
  bool failed_ = false;  // a rank, by itself
  bool abandoned_ = false;
  int exit_status_ = 0;
  int user_signals_ = 0;
  Clock::time_point terminate_at_ = Clock::time_point::max();
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace

Result<int> RunRanks(const ProcessGroupOptions& options) {
  ProcessGroup group(options);
  return group.Run();
}

}  // namespace marea
