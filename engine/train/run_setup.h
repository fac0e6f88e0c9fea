// Everything about a run that is known before anything is allocated: model, config, data, budgets
// and the plan. `marea plan` prints it, `marea train` goes on to run it.
//
// Owner: the command. Not thread safe. PrepareRun takes seconds at most, and leaves nothing behind.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/model_folder.h"
#include "engine/checkpoint/model_weights.h"
#include "engine/comm/world.h"
#include "engine/config/training_config.h"
#include "engine/data/batch_source.h"
#include "engine/data/dataset.h"
#include "engine/optim/simd_level.h"
#include "engine/plan/planner.h"
#include "engine/train/budgets.h"
#include "engine/train/run_options.h"
#include "io/status.h"
#include "swap/gpu_probe.h"
#include "swap/store_layout.h"

namespace marea {

struct RunSetup {
  RunOptions options;
  World world;                   // this rank and how many there are
  std::optional<GpuFacts> gpu;   // none: the CPU computes
  uint32_t threads = 1;          // of the compute library and of the optimizer
  std::optional<int> numa_node;  // that this rank is bound to
  SimdLevel simd_level = DetectSimdLevel();
  ModelFolder folder;
  std::unique_ptr<ModelWeights> weights;  // null: random initial values
  TrainingConfig config;
  BatchShape batch;
  std::unique_ptr<ModelShape> model;  // on the heap: the plan refers to it
  std::unique_ptr<Dataset> data;
  std::unique_ptr<BatchSource> batches;
  std::unique_ptr<Dataset> eval_data;  // null: no evaluation
  std::unique_ptr<BatchSource> eval_batches;
  uint64_t steps = 0;  // of the whole run
  Budgets budgets;     // this rank's share of the node's
  std::vector<StorePath> store_paths;
  PlannedRun planned;
  std::vector<std::string> warnings;
  std::vector<std::string> notices;
};

// InvalidArgument (exit 2) for anything wrong with flags, config, model or data; DoesNotFit (exit
// 3) where the budgets cannot work. Starts the torch runtime (threads, libraries) so that the
// process's own memory is known.
Result<std::unique_ptr<RunSetup>> PrepareRun(const RunOptions& options, const World& world = {});

}  // namespace marea
