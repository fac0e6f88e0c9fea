#include "engine/train/training_run.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <optional>

#include "engine/checkpoint/atomic_file.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/plan/plan_json.h"
#include "engine/report/metrics_writer.h"
#include "engine/train/output_folder.h"
#include "engine/train/run_ranks.h"
#include "engine/train/run_report.h"
#include "engine/train/run_resources.h"
#include "engine/train/shard_init.h"
#include "engine/train/weight_reader.h"
#include "io/memory_limits.h"
#include "io/steady_seconds.h"
#include "io/units.h"

namespace marea {
namespace {

Status WriteText(const std::string& path, const std::string& text) {
  return WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

StallSeconds Difference(const StallSeconds& later, const StallSeconds& earlier) {
  StallSeconds difference{};
  for (int lane = 0; lane < kLaneCount; ++lane) difference[lane] = later[lane] - earlier[lane];
  return difference;
}

}  // namespace

struct TrainingRun::Impl {
  Impl(const RunSetup& run_setup, TrainingObserver& run_observer)
      : setup(run_setup),
        observer(run_observer),
        metrics(run_setup.options.output_path + "/metrics.jsonl") {}

  std::string OutputFile(const char* name) const { return setup.options.output_path + "/" + name; }
  // Rank 0 writes what is the whole run's.
  bool leads() const { return setup.world.rank == 0; }

  Status Prepare();
  Result<RunSummary> Run();
  Status Initialise();
  Status Meet(const std::string& where);
  Status WriteResults(RunSummary& summary);
  Status TrainSteps(RunSummary& summary);
  uint64_t EnqueueTraining(uint64_t step);
  uint64_t Enqueue(StepMask mask, TurnInputs inputs);
  Result<double> Evaluate();
  Result<TurnOutcome> NextOutcome();
  bool EvaluatesAfter(uint64_t step) const;
  bool Stops() const;
  Status FinishStep(uint64_t step, const TurnOutcome& outcome, RunSummary& summary);
  Status CheckMemory(uint64_t peak_bytes) const;
  Status SaveCheckpoint();
  Status Summarise(RunSummary& summary);

  const RunSetup& setup;
  TrainingObserver& observer;
  std::unique_ptr<RunRanks> ranks;  // null: one rank; outlives the resources
  std::atomic<bool> stop{false};    // this rank was asked to stop
  std::unique_ptr<RunResources> resources;
  MetricsWriter metrics;
  bool all_stop = false;  // some rank was, and all know

  bool update_pending = false;  // gradients wait for the next turn
  uint64_t updates = 0;         // enqueued so far
  double line_seconds = 0;      // when the last line was written
  SwapSnapshot line_lanes{};
  StallSeconds line_stalls{};
  double first_step_seconds = 0;  // when the first step began
  SwapSnapshot first_lanes{};
  RunMeasures measures;
};

Result<std::unique_ptr<TrainingRun>> TrainingRun::Create(const RunSetup& setup,
                                                         TrainingObserver& observer) {
  auto impl = std::make_unique<Impl>(setup, observer);
  MAREA_ASSIGN_OR_RETURN(impl->ranks, JoinRanks(setup));
  const Status prepared = impl->Prepare();
  if (!prepared.ok()) {
    if (impl->ranks) impl->ranks->group->Fail(prepared);
    return prepared;
  }
  return std::unique_ptr<TrainingRun>(new TrainingRun(std::move(impl)));
}

Status TrainingRun::Impl::Prepare() {
  // On every rank, each of which leaves its trace there: nodes need not share a file system.
  MAREA_ASSIGN_OR_RETURN(OutputFolder output, OutputFolder::Make(setup.options.output_path));
  MAREA_ASSIGN_OR_RETURN(
      resources, RunResources::Create(setup, ranks.get(), stop, [&](uint64_t done, uint64_t all) {
        observer.OnPhase("preparing files", done, all);
      }));
  if (leads()) MAREA_RETURN_IF_ERROR(WriteText(OutputFile("plan.json"), ToJson(setup.planned)));
  output.Keep();
  for (const std::string& warning : resources->warnings()) observer.OnWarning(warning);
  for (const std::string& notice : resources->notices()) observer.OnNotice(notice);
  return Status::Ok();
}

TrainingRun::TrainingRun(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TrainingRun::~TrainingRun() = default;

void TrainingRun::RequestStop() {
  impl_->stop.store(true, std::memory_order_relaxed);
}

Result<RunSummary> TrainingRun::Run() {
  RunRanks* const ranks = impl_->ranks.get();
  if (!ranks) return impl_->Run();
  // A rank that fails ends the others' waits: their collectives return, and their lanes stop.
  const uint64_t listener =
      ranks->group->OnFailure([this](const Status& status) { impl_->resources->Cancel(status); });
  Result<RunSummary> summary = impl_->Run();
  ranks->group->RemoveListener(listener);
  if (summary.ok()) {
    MAREA_RETURN_IF_ERROR(ranks->group->Leave());
    return summary;
  }
  const Status cause = ranks->group->CauseOf(summary.status());
  ranks->group->Fail(summary.status());
  return cause;
}

Result<RunSummary> TrainingRun::Impl::Run() {
  RunSummary summary;
  MAREA_RETURN_IF_ERROR(Initialise());
  MAREA_RETURN_IF_ERROR(Meet("before the first step"));
  const Status trained = TrainSteps(summary);
  const Status drained = resources->executor().Drain();
  if (!trained.ok() || !drained.ok()) {
    (void)resources->Shutdown();  // the first failure is the one to report
    return trained.ok() ? drained : trained;
  }
  MAREA_RETURN_IF_ERROR(Summarise(summary));
  MAREA_RETURN_IF_ERROR(WriteResults(summary));
  return summary;
}

// All ranks are here.
Status TrainingRun::Impl::Meet(const std::string& where) {
  return ranks ? ranks->group->Barrier(where) : Status::Ok();
}

Status TrainingRun::Impl::WriteResults(RunSummary& summary) {
  const std::string trace =
      leads() ? "trace.json" : fmt::format("trace.rank{}.json", setup.world.rank);
  MAREA_RETURN_IF_ERROR(resources->trace().WriteTo(OutputFile(trace.c_str())));
  MAREA_RETURN_IF_ERROR(SaveCheckpoint());
  MAREA_RETURN_IF_ERROR(resources->Shutdown());
  if (!leads()) return Status::Ok();
  return WriteText(OutputFile("summary.json"), ToJson(summary));
}

Status TrainingRun::Impl::Initialise() {
  return InitialiseShards(setup.planned.spec, setup.weights.get(), setup.options.seed,
                          setup.threads, resources->shards(), [&](uint64_t done, uint64_t all) {
                            observer.OnPhase("initialising", done, all);
                          });
}

// One step after another; the next is enqueued as soon as this one's loss is known, so that the
// lanes run ahead of its backward.
Status TrainingRun::Impl::TrainSteps(RunSummary& summary) {
  first_step_seconds = line_seconds = SteadySeconds();
  first_lanes = line_lanes = resources->stats().Snapshot();
  uint64_t enqueued = 0;
  for (uint64_t step = 0; step < setup.steps; ++step) {
    if (step == enqueued) {
      if (Stops()) break;
      EnqueueTraining(enqueued++);
    }
    const uint64_t turn = resources->executor().turns_enqueued() - 1;
    resources->step_runner().WaitForHead(turn, [&] { return resources->executor().failed(); });
    const bool more = enqueued < setup.steps && !Stops();
    if (more && !EvaluatesAfter(step)) EnqueueTraining(enqueued++);
    MAREA_ASSIGN_OR_RETURN(const TurnOutcome outcome, NextOutcome());
    all_stop |= outcome.stop;
    MAREA_RETURN_IF_ERROR(FinishStep(step, outcome, summary));
  }
  summary.interrupted = summary.steps < setup.steps;
  if (update_pending) Enqueue({}, {});
  return Status::Ok();
}

// Ranks stop after the same step: one that is asked says so with its next loss.
bool TrainingRun::Impl::Stops() const {
  return ranks ? all_stop : stop.load(std::memory_order_relaxed);
}

uint64_t TrainingRun::Impl::EnqueueTraining(uint64_t step) {
  const StepBatch batch = setup.batches->Step(step);
  const uint64_t turn = Enqueue({.train = true, .micro_count = batch.micro_count},
                                {.batches = setup.batches.get(), .batch_step = step});
  update_pending = true;
  return turn;
}

// Every turn applies the gradients that wait.
uint64_t TrainingRun::Impl::Enqueue(StepMask mask, TurnInputs inputs) {
  mask.update = std::exchange(update_pending, false);
  if (mask.update) {
    const OptimizerConfig& optimizer = setup.config.optimizer;
    const AdamWConfig config{.beta1 = optimizer.beta1,
                             .beta2 = optimizer.beta2,
                             .epsilon = optimizer.epsilon,
                             .weight_decay = optimizer.weight_decay};
    const double rate = LearningRate(setup.config.schedule, updates, optimizer.learning_rate);
    inputs.update = MakeAdamWConstants(config, rate, updates++);
  }
  resources->step_runner().SetTurn(resources->executor().turns_enqueued(), inputs);
  return resources->executor().Enqueue(mask);
}

Result<TurnOutcome> TrainingRun::Impl::NextOutcome() {
  Executor& executor = resources->executor();
  const TurnOutcome outcome =
      resources->step_runner().WaitForOutcome([&] { return executor.failed(); });
  if (outcome.turn != UINT64_MAX) return outcome;
  // Told before the drain: a collective of this rank may wait for ranks that wait for this one.
  if (ranks) ranks->group->Fail(executor.failure());
  const Status status = executor.Drain();
  MAREA_CHECK(!status.ok(), "a run gave up without a failure");
  return status;
}

bool TrainingRun::Impl::EvaluatesAfter(uint64_t step) const {
  if (!setup.eval_batches) return false;
  const bool last = step + 1 == setup.steps;
  return last || (setup.options.eval_every && (step + 1) % *setup.options.eval_every == 0);
}

// The mean loss over the whole of the evaluation data.
Result<double> TrainingRun::Impl::Evaluate() {
  double sum = 0;
  double weight = 0;
  for (uint64_t step = 0; step < setup.eval_batches->steps_per_pass(); ++step) {
    const StepBatch batch = setup.eval_batches->Step(step);
    Enqueue({.eval = true, .micro_count = batch.micro_count},
            {.batches = setup.eval_batches.get(), .batch_step = step});
    MAREA_ASSIGN_OR_RETURN(const TurnOutcome outcome, NextOutcome());
    sum += outcome.loss * batch.token_weight;
    weight += batch.token_weight;
  }
  return weight > 0 ? sum / weight : 0;
}

Status TrainingRun::Impl::FinishStep(uint64_t step, const TurnOutcome& outcome,
                                     RunSummary& summary) {
  const double now = SteadySeconds();
  const SwapSnapshot lanes = resources->stats().Snapshot();
  const StallSeconds stalls = resources->executor().stall_seconds();
  MAREA_ASSIGN_OR_RETURN(const ProcessMemory memory, ReadProcessMemory());
  measures.ram_peak_bytes = memory.peak_resident_bytes;

  StepMetrics line;
  line.step = step + 1;
  line.loss = outcome.loss;
  line.learning_rate =
      LearningRate(setup.config.schedule, step, setup.config.optimizer.learning_rate);
  line.grad_norm = outcome.grad_norm;
  line.tokens = setup.batches->Step(step).tokens;
  line.step_seconds = now - line_seconds;
  measures.vram_peak_bytes = resources->device().peak_bytes();
  line.vram_peak_bytes = measures.vram_peak_bytes;
  line.ram_peak_bytes = measures.ram_peak_bytes;
  line.lanes = marea::Difference(lanes, line_lanes);
  line.stall_seconds = Difference(stalls, line_stalls);
  line_seconds = now;
  line_lanes = lanes;
  line_stalls = stalls;
  if (step > 0) {
    for (const std::string& slow : resources->WatchPaths()) observer.OnWarning(slow);
  }
  if (EvaluatesAfter(step)) {
    MAREA_ASSIGN_OR_RETURN(line.eval_loss, Evaluate());
    summary.eval_loss_last = line.eval_loss;
    line_seconds = SteadySeconds();  // evaluation is in no step's time
  }
  if (step == 0 || line.eval_loss) resources->RestartPathWatch();
  if (!std::isfinite(line.loss) || !std::isfinite(line.grad_norm)) {
    observer.OnWarning(fmt::format("step {}: loss {} with a gradient norm of {}", line.step,
                                   line.loss, line.grad_norm));
  }
  if (leads()) MAREA_RETURN_IF_ERROR(metrics.Append(line));
  observer.OnStep(line);
  if (step == 0) summary.loss_first = line.loss;
  measures.step_seconds.push_back(line.step_seconds);
  summary.loss_last = line.loss;
  summary.steps = line.step;
  return step == 0 ? CheckMemory(measures.ram_peak_bytes) : Status::Ok();
}

// On the CPU nothing caps the compute library's temporaries, so a broken promise ends the run.
Status TrainingRun::Impl::CheckMemory(uint64_t peak_bytes) const {
  if (peak_bytes <= setup.budgets.ram_bytes) return Status::Ok();
  return Status::DoesNotFit(fmt::format(
      "the process needed {} of RAM in its first step, more than --ram {} (predicted {}); pass "
      "--ram {}MiB",
      FormatBytes(peak_bytes), FormatBytes(setup.budgets.ram_bytes),
      FormatBytes(setup.planned.ram_peak_bytes), DivideRoundUp(peak_bytes * 21 / 20, kMiB)));
}

Status TrainingRun::Impl::SaveCheckpoint() {
  const uint64_t element_bytes = WeightBytes(setup.config.precision);
  WeightReader reader(setup.planned.spec, resources->shards(),
                      ranks ? ranks->shards.get() : nullptr);
  if (!leads()) return reader.Serve();
  uint64_t done = 0;
  const uint64_t all = setup.model->parameters * element_bytes;
  const Status written = WriteCheckpoint(
      OutputFile("checkpoint"), setup.folder.config_text, *setup.model, setup.config.precision,
      [&](uint32_t group, const TensorShape& tensor, uint64_t first_element,
          std::span<std::byte> out) {
        done += out.size();
        observer.OnPhase("writing the checkpoint", done, all);
        return reader.Read(group, tensor.first_element + first_element, out);
      });
  const Status finished = reader.Finish();
  return written.ok() ? finished : written;
}

Status TrainingRun::Impl::Summarise(RunSummary& summary) {
  measures.run_seconds = line_seconds - first_step_seconds;
  measures.lanes = marea::Difference(resources->stats().Snapshot(), first_lanes);
  FillSummary(setup, *resources, measures, summary);
  return ranks ? CollectRankPeaks(*ranks->group, measures, summary) : Status::Ok();
}

}  // namespace marea
