// Trains: allocates what the plan says, streams the initial weights to their homes, runs the plan
// step by step, and leaves a checkpoint.
//
// Owner: the command. Thread rule: one thread makes, runs and destroys it; RequestStop from any
// thread or a signal handler.
#pragma once

#include <memory>
#include <string>

#include "engine/report/run_summary.h"
#include "engine/report/step_metrics.h"
#include "engine/train/run_setup.h"
#include "io/status.h"

namespace marea {

// Told of what happens, on the thread that runs. All calls are quick.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // A phase with its progress: "preparing files", "initialising", "writing the checkpoint".
  virtual void OnPhase(const std::string& phase, uint64_t done_bytes, uint64_t total_bytes) = 0;
  virtual void OnStep(const StepMetrics& metrics) = 0;
  virtual void OnWarning(const std::string& sentence) = 0;
  virtual void OnNotice(const std::string& sentence) = 0;  // nothing is wrong
};

class TrainingRun {
 public:
  // `setup` and `observer` outlive the run. Allocates arenas and files; on failure nothing is left.
  static Result<std::unique_ptr<TrainingRun>> Create(const RunSetup& setup,
                                                     TrainingObserver& observer);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  // Runs every step, applies the last update, writes metrics.jsonl, trace.json, plan.json,
  // summary.json and checkpoint/ under the output folder. Blocks. After a failure the files that
  // were there before are whole.
  Result<RunSummary> Run();

  // Ends after the step that is running, as if it were the last. Async-signal-safe.
  void RequestStop();

 private:
  struct Impl;
  explicit TrainingRun(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace marea
