// Everything that a run allocates, made from its plan and taken down in order.
//
// Owner: TrainingRun. Thread rule: made and destroyed by one thread; Cancel from any.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/report/trace_recorder.h"
#include "engine/train/run_ranks.h"
#include "engine/train/run_setup.h"
#include "engine/train/step_runner.h"
#include "io/mutex.h"
#include "io/pinned_arena.h"
#include "io/status.h"
#include "swap/device.h"
#include "swap/executor.h"
#include "swap/nvme_tier.h"
#include "swap/path_watch.h"
#include "swap/shard_access.h"
#include "swap/swap_stats.h"
#include "swap/swapper.h"

namespace marea {

class RunResources {
 public:
  // `ranks` is null for one rank, `stop` is set when this one is asked to stop; both outlive the
  // resources. `progress` is told of the files' preparation, in bytes. On failure nothing is left
  // behind.
  static Result<std::unique_ptr<RunResources>> Create(
      const RunSetup& setup, const RunRanks* ranks, const std::atomic<bool>& stop,
      const std::function<void(uint64_t, uint64_t)>& progress);
  ~RunResources();

  Executor& executor() { return *executor_; }
  StepRunner& step_runner() { return *step_runner_; }
  ShardAccess& shards() { return *shards_; }
  Device& device() { return *device_; }
  SwapStats& stats() { return *stats_; }
  TraceRecorder& trace() { return *trace_; }
  const IoModeReport* io_mode() const { return tier_ ? tier_->mode() : nullptr; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  const std::vector<std::string>& notices() const { return notices_; }

  // After each step, from the second on: what there is to tell of paths that became slow.
  std::vector<std::string> WatchPaths();
  // What has moved since the last step was none's: before the second step, after an evaluation.
  void RestartPathWatch();

  // Fails what the executor runs, as Executor::Cancel; nothing once it is taken down.
  void Cancel(const Status& status);

  // Checks that nothing is leased or in flight, and takes everything down; the NVMe files are
  // removed. REQUIRES: the executor is drained. Harmless to repeat.
  Status Shutdown();

 private:
  RunResources(const RunSetup& setup, const RunRanks* ranks, const std::atomic<bool>& stop)
      : setup_(setup), ranks_(ranks), stop_(stop), store_paths_(setup.store_paths) {}
  int NumaNode() const;  // where memory is to be
  Status OpenDevice();
  Status MeasurePathSpeeds();
  Status AllocateArenas();
  Status OpenTier(const std::function<void(uint64_t, uint64_t)>& progress);
  Status MakeRunners();
  PathSample SamplePaths() const;

  const RunSetup& setup_;
  const RunRanks* const ranks_;
  const std::atomic<bool>& stop_;
  std::vector<StorePath> store_paths_;  // the setup's; weights are measured if there are several
  std::vector<std::string> warnings_;
  std::vector<std::string> notices_;
  std::unique_ptr<SwapStats> stats_;
  std::unique_ptr<Device> device_;
  std::optional<PinnedArena> ram_;
  std::optional<PinnedArena> scalars_;
  std::array<std::byte*, kSpaceCount> bases_{};
  std::unique_ptr<NvmeTier> tier_;
  std::optional<PathWatch> path_watch_;  // of the first rank of a machine, with chunks on NVMe
  std::unique_ptr<StepRunner> step_runner_;
  std::unique_ptr<Swapper> swapper_;
  std::unique_ptr<ShardAccess> shards_;
  std::unique_ptr<TraceRecorder> trace_;
  Mutex executor_mutex_;  // guards executor_ between Cancel and Shutdown alone
  std::unique_ptr<Executor> executor_;
};

}  // namespace marea
