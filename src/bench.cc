// marea bench: what NVMe drives, and with --all the machine, give a training run.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "engine/checkpoint/atomic_file.h"
#include "engine/comm/world.h"
#include "io/units.h"
#include "src/arguments.h"
#include "src/bench/bench_report.h"
#include "src/bench/bench_session.h"
#include "src/bench/fio_peer.h"
#include "src/bench/machine_report.h"
#include "src/bench/replay.h"
#include "src/bench/stopped.h"
#include "src/bench/sweep.h"
#include "src/bench_flags.h"
#include "src/bench_progress.h"
#include "src/commands.h"
#include "src/gather_speed.h"
#include "src/machine_speed.h"
#include "src/messages.h"

namespace marea {
namespace {

constexpr int kComparisonRuns = 5;

// A handler can reach nothing but globals. The first signal ends the measurement that runs, the
// second the process; the files have no names any more, so either way none is left.
std::atomic<bool> stop_requested{false};
std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int signal) {
  if (stop_requested.exchange(true)) _exit(128 + signal);
  stop_signal = signal;
}

void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

// A drive that is silent holds memory and threads: there is no orderly way out.
[[noreturn]] void EndAtOnce(const Status& status) {
  PrintError(status.message());
  std::fflush(nullptr);
  _exit(ExitCode(status.code()));
}

// InvalidArgument where no file can be made.
Status CheckProfilePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
    return Status::InvalidArgument(fmt::format(
        "--machine-profile {}: there is no folder {}: make it first", path, folder.native()));
  }
  if (!std::filesystem::is_directory(path, error)) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("--machine-profile {}: it is a folder: name a file", path));
}

// The whole of one run of the command, after its flags are understood.
class BenchCommand {
 public:
  BenchCommand(const BenchRun& run, const World& world) : run_(run), world_(world) {}

  Status Run() {
    // First, since the other ranks do nothing else.
    if (world_.size > 1) MAREA_RETURN_IF_ERROR(MeasureWithRanks());
    if (world_.rank > 0) return Status::Ok();
    MAREA_RETURN_IF_ERROR(OpenProfile());
    if (!run_.folders.empty()) MAREA_RETURN_IF_ERROR(MeasureDrives());
    session_.reset();
    if (run_.all) MAREA_RETURN_IF_ERROR(MeasureRest());
    if (run_.endurance_rating_bytes.has_value()) EstimateEndurance();
    progress_.Clear();
    return WriteProfile();
  }

  void Print() const {
    if (run_.json) {
      fmt::print("{}", ReportJson(report_));
      return;
    }
    if (report_.machine.has_value()) fmt::print("{}\n", MachineText(*report_.machine));
    if (!report_.results.empty()) PrintDrives();
    if (!run_.machine_profile_path.empty()) {
      fmt::print("the machine's profile is in {}\n", run_.machine_profile_path);
    }
  }

  // DoesNotFit (exit 3) names the first result below --require.
  Status CheckRequired() const {
    if (!run_.require_bytes_per_second.has_value()) return Status::Ok();
    for (const BenchResult& result : report_.results) {
      if (result.bytes_per_second() >= *run_.require_bytes_per_second) continue;
      return Status::DoesNotFit(fmt::format(
          "{} on {} gives {}, below the required {}", WorkloadName(result.kind),
          result.paths.size() == 1 ? result.paths.front() : "all paths",
          FormatRate(result.bytes_per_second()), FormatRate(*run_.require_bytes_per_second)));
    }
    return Status::Ok();
  }

  BenchProgress& progress() { return progress_; }

 private:
  // Before anything is measured: a wrong place is found at once.
  Status OpenProfile() {
    if (run_.machine_profile_path.empty()) return Status::Ok();
    MAREA_RETURN_IF_ERROR(CheckProfilePath(run_.machine_profile_path));
    Result<std::unique_ptr<AtomicFile>> file = AtomicFile::Create(run_.machine_profile_path, 0);
    if (!file.ok()) {
      return Status::InvalidArgument("--machine-profile: " + file.status().message());
    }
    profile_file_ = std::move(file).value();
    return Status::Ok();
  }

  Status WriteProfile() {
    if (profile_file_ == nullptr) return Status::Ok();
    const std::string text = ToJson(*report_.machine);
    MAREA_RETURN_IF_ERROR(profile_file_->Write(std::as_bytes(std::span(text))));
    return profile_file_->Commit();
  }

  Status MeasureWithRanks() {
    if (!run_.all) {
      return Status::InvalidArgument(
          "several ranks of marea bench have something to measure together only with --all (their "
          "all-gather): add it, or start marea bench alone");
    }
    progress_.Announce("all-gather", 0);
    SpeedOptions options;
    options.seconds = run_.seconds;
    options.stop = &stop_requested;
    MAREA_ASSIGN_OR_RETURN(all_gather_, MeasureGather(world_, options));
    return Status::Ok();
  }

  // All but drives, which have been measured.
  Status MeasureRest() {
    MAREA_ASSIGN_OR_RETURN(
        report_.machine,
        MeasureMachine(
            {.seconds = run_.seconds,
             .stop = &stop_requested,
             .announce = [this](const std::string& what) { progress_.Announce(what, 0); },
             .all_gather = all_gather_}));
    return AddDrives(report_.paths, report_.results, &*report_.machine);
  }

  Status MeasureDrives() {
    std::string fio;
    if (run_.compare_fio) {
      MAREA_ASSIGN_OR_RETURN(fio, FindFio());
    }
    BenchOptions options{
        .folders = run_.folders, .file_bytes = {}, .seconds = run_.seconds, .mode = run_.mode};
    options.file_bytes.assign(run_.folders.size(), run_.kinds.empty() ? 0 : run_.file_bytes);
    if (!run_.replay_path.empty()) MAREA_RETURN_IF_ERROR(PrepareReplay(&options));
    RunWatch watch;
    watch.progress = [this](const RunProgress& progress) { progress_.Show(progress); };
    watch.stop = &stop_requested;
    watch.give_up_seconds = run_.give_up_seconds;
    watch.on_stall = [this](const Status& status) {
      progress_.Clear();
      profile_file_.reset();
      EndAtOnce(status);
    };
    const auto announce = [this](const std::string& step, uint64_t bytes) {
      progress_.Announce(step, bytes);
    };
    MAREA_ASSIGN_OR_RETURN(session_, BenchSession::Open(options, run_.shape, watch, announce));
    report_.paths = session_->paths();
    MAREA_RETURN_IF_ERROR(run_.sweep ? Sweep() : MeasureAll());
    if (replay_.has_value()) {
      MAREA_ASSIGN_OR_RETURN(BenchResult result, session_->MeasureReplay(*replay_, run_.shape));
      report_.results.push_back(std::move(result));
    }
    MAREA_RETURN_IF_ERROR(session_->VerifyAll(run_.shape));
    for (const WorkloadKind kind : run_.kinds) {
      if (run_.compare_fio) MAREA_RETURN_IF_ERROR(Compare(kind, fio));
    }
    return Status::Ok();
  }

  // What a step or a day writes beside the rating.
  void EstimateEndurance() {
    const uint64_t rating = *run_.endurance_rating_bytes;
    if (replay_.has_value()) {
      const ReplayNeeds& needs = replay_->needs();
      const auto step_bytes = static_cast<double>(needs.read_bytes + needs.write_bytes);
      report_.endurance =
          EnduranceOfReplay(run_.folders, needs.file_write_bytes,
                            report_.results.back().bytes_per_second() / step_bytes, rating);
      return;
    }
    for (const BenchResult& result : report_.results) {
      if (result.kind != WorkloadKind::kWrite || result.paths.size() != 1) continue;
      report_.endurance.push_back(
          EnduranceOfWriting(result.paths.front(), result.write_bytes_per_second(), rating));
    }
  }

  Status PrepareReplay(BenchOptions* options) {
    MAREA_ASSIGN_OR_RETURN(plan_, ReadReplayPlan(run_.replay_path));
    const Result<Replay> replay =
        Replay::Make(plan_.plan, plan_.micro_count, static_cast<uint32_t>(run_.folders.size()));
    if (!replay.ok()) return replay.status().WithContext("--replay " + run_.replay_path);
    replay_ = replay.value();
    for (size_t i = 0; i < options->file_bytes.size(); ++i) {
      options->file_bytes[i] =
          std::max({options->file_bytes[i], replay_->needs().file_bytes[i], kPageBytes});
    }
    return Status::Ok();
  }

  Status MeasureOne(WorkloadKind kind, const BenchShape& shape, std::optional<size_t> path) {
    MAREA_ASSIGN_OR_RETURN(BenchResult result, session_->Measure(kind, shape, path, run_.seconds));
    report_.results.push_back(std::move(result));
    return Status::Ok();
  }

  // Each path alone, then all side by side.
  Status MeasureAll() {
    for (size_t path = 0; path < run_.folders.size(); ++path) {
      for (const WorkloadKind kind : run_.kinds) {
        MAREA_RETURN_IF_ERROR(MeasureOne(kind, run_.shape, path));
      }
    }
    if (run_.folders.size() == 1) return Status::Ok();
    for (const WorkloadKind kind : run_.kinds) {
      MAREA_RETURN_IF_ERROR(MeasureOne(kind, run_.shape, std::nullopt));
    }
    return Status::Ok();
  }

  Status Sweep() {
    std::vector<SweepPoint> points;
    for (const BenchShape& shape : SweepGrid(run_.file_bytes)) {
      SweepPoint point{shape, {}};
      for (const WorkloadKind kind : run_.kinds) {
        MAREA_RETURN_IF_ERROR(MeasureOne(kind, shape, std::nullopt));
        point.bytes_per_second.push_back(report_.results.back().bytes_per_second());
      }
      points.push_back(std::move(point));
    }
    report_.best = BestPoint(points).shape;
    return Status::Ok();
  }

  Status Compare(WorkloadKind kind, const std::string& fio) {
    FioComparison comparison;
    comparison.kind = kind;
    comparison.shape = run_.shape;
    comparison.fio_huge_pages = HugePagesFor(run_.shape);
    const FioJob job{.program = fio,
                     .file_name = fmt::format("/proc/{}/fd/{}", ::getpid(), session_->fd(0)),
                     .file_bytes = session_->file_bytes(0),
                     .kind = kind,
                     .shape = run_.shape,
                     .warm_up_seconds = WarmUpSeconds(run_.seconds),
                     .seconds = run_.seconds,
                     .huge_pages = comparison.fio_huge_pages};
    for (int i = 0; i < kComparisonRuns; ++i) {
      MAREA_ASSIGN_OR_RETURN(const BenchResult ours,
                             session_->Measure(kind, run_.shape, 0, run_.seconds));
      comparison.marea_rates.push_back(ours.bytes_per_second());
      comparison.marea_cpu.push_back(ours.cpu_core_ms_per_gb());
      progress_.Announce(fmt::format("fio {}", WorkloadName(kind)), 0);
      const Result<FioFigure> theirs = RunFio(job);
      if (stop_requested) return Stopped();
      if (!theirs.ok()) return theirs.status();
      comparison.fio_rates.push_back(theirs.value().bytes_per_second);
      comparison.fio_cpu.push_back(theirs.value().cpu_core_ms_per_gb);
      // What fio has written carries no stamps.
      if (Writes(kind)) MAREA_RETURN_IF_ERROR(session_->Refill(run_.shape));
    }
    report_.comparisons.push_back(std::move(comparison));
    return Status::Ok();
  }

  void PrintDrives() const {
    fmt::print("{}{}\n{}", PathsText(report_.paths), ModeText(report_.results.front().mode),
               ResultsText(report_.results));
    if (replay_.has_value()) PrintReplay();
    if (!report_.endurance.empty()) fmt::print("\n{}", EnduranceText(report_.endurance));
    if (!report_.comparisons.empty()) fmt::print("\n{}", ComparisonsText(report_.comparisons));
    if (report_.best.has_value()) {
      fmt::print(
          "\nbest: {} x {}. In the DeepSpeed file that both marea and DeepSpeed read:\n  {}\n",
          FormatBytes(report_.best->block_bytes), report_.best->queue_depth,
          AioSection(*report_.best));
    }
  }

  void PrintReplay() const {
    const BenchResult& result = report_.results.back();
    const ReplayNeeds& needs = replay_->needs();
    const double step_bytes = static_cast<double>(needs.read_bytes + needs.write_bytes);
    fmt::print("a step of the plan reads {} and writes {}: {:.2f} s of these drives\n",
               FormatBytes(needs.read_bytes), FormatBytes(needs.write_bytes),
               step_bytes / result.bytes_per_second());
  }

  const BenchRun& run_;
  const World& world_;
  std::optional<double> all_gather_;
  BenchProgress progress_;
  PlanFile plan_;
  std::optional<Replay> replay_;
  std::unique_ptr<BenchSession> session_;
  BenchReport report_;
  std::unique_ptr<AtomicFile> profile_file_;
};

// What the drives or the machine cannot give is wrong input here; 3 is --require's.
int FailBench(const Status& status) {
  if (status.code() == ErrorCode::kCancelled) {
    PrintError(status.message());
    return 128 + stop_signal.load();
  }
  const int exit_status = FailWith(status);
  const bool unfit =
      status.code() == ErrorCode::kDoesNotFit || status.code() == ErrorCode::kUnavailable;
  return unfit ? ExitCode(ErrorCode::kInvalidArgument) : exit_status;
}

}  // namespace

int RunBenchCommand(const std::vector<std::string>& arguments) {
  BenchFlags flags;
  FlagSet set("marea bench",
              "Measures what NVMe drives, and with --all the machine, give a training run.");
  AddBenchFlags(set, flags);
  if (const std::optional<int> ended = set.ParseOrEnd(SpreadNvmePaths(arguments))) return *ended;
  const Result<BenchRun> run = ToBenchRun(flags);
  if (!run.ok()) return FailWith(run.status());
  Result<World> world = WorldFromEnvironment();
  // Drives are measured wherever it is started.
  if (!world.ok() && !flags.all) world = World{};
  if (!world.ok()) return FailWith(world.status());
  CatchSignals();
  BenchCommand command(run.value(), world.value());
  const Status done = command.Run();
  command.progress().Clear();
  if (!done.ok()) return FailBench(done);
  if (world.value().rank > 0) return 0;
  command.Print();
  const Status fast_enough = command.CheckRequired();
  return fast_enough.ok() ? 0 : FailWith(fast_enough);
}

}  // namespace marea
