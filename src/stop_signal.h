// SIGINT and SIGTERM while a run trains: the first asks it to end after the step that is running,
// the second ends the process at once, with status 128 + signal.
//
// At once means that nothing is taken down: files under the output folder are whole all the same
// (each is renamed into place), but a run's file in its NVMe folder stays until the next run there
// takes it over.
//
// Owner: the command; one at a time. Thread rule: made, used and destroyed by the main thread.
#pragma once

#include "engine/train/training_run.h"

namespace marea {

class StopSignal {
 public:
  // Takes over both signals, and ignores SIGPIPE: a run does not die with the reader of its
  // progress.
  StopSignal();
  // Gives them back.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // From now on a signal reaches `run`; one that came before, too. Until Unwatch, which `run`
  // outlives.
  void Watch(TrainingRun& run);
  void Unwatch();

  // Whether a signal has come.
  bool requested() const;
};

}  // namespace marea
