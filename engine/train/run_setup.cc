#include "engine/train/run_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/comm/nccl_communicator.h"
#include "engine/config/deepspeed_config.h"
#include "engine/model/torch_cuda.h"
#include "engine/model/torch_runtime.h"
#include "engine/train/numa_home.h"
#include "engine/train/run_ranks.h"
#include "io/memory_limits.h"
#include "io/topology.h"
#include "io/units.h"

namespace marea {
namespace {

constexpr uint32_t kSequenceLengthDefault = 2048;
// What the process grows by after its libraries are loaded, apart from what the plan places: code
// pages touched for the first time, thread stacks, kernels compiled at run time, the allocator's
// slack.
constexpr uint64_t kProcessGrowthBytes = 192 * kMiB;
// The same with CUDA: kernels are brought to the GPU as they are first used, and libraries read
// for it.
constexpr uint64_t kGpuProcessGrowthBytes = kGiB;
// Of VRAM: the context, kernels, cuBLAS, and small segments of torch's allocator.
constexpr uint64_t kGpuProcessBytes = kGiB;

void Append(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// What contradicts itself in the flags alone.
Status CheckFlags(const RunOptions& options) {
  if (options.slots != 1 && options.slots != 2) {
    return Status::InvalidArgument("--slots must be 1 or 2");
  }
  if (options.wave_size && *options.wave_size == 0) {
    return Status::InvalidArgument("--wave must be 1 or more");
  }
  if (options.eval_every && !options.eval_data_path) {
    return Status::InvalidArgument("--eval-every needs --eval-data FILE");
  }
  if (options.steps && options.epochs) {
    return Status::InvalidArgument("--steps and --epochs contradict each other: give one of them");
  }
  if (options.steps.value_or(1) == 0 || options.epochs.value_or(1) == 0) {
    return Status::InvalidArgument(
        "there is nothing to do: --steps and --epochs must be 1 or more");
  }
  return Status::Ok();
}

// Takes this rank's GPU if it can be used; auto goes on without.
Status ChooseGpu(RunSetup& setup) {
  Result<GpuFacts> gpu = ProbeGpu(GpuOfLocalRank(setup.world.local_rank));
  Status status = gpu.status();
  if (status.ok()) status = LoadTorchCuda();
  if (status.ok()) {
    setup.gpu = std::move(gpu).value();
    return Status::Ok();
  }
  if (setup.options.device == DeviceChoice::kCuda) {
    return Status::InvalidArgument("--device cuda: " + status.message() + "; or pass --device cpu");
  }
  // A machine that has a GPU should not be slow without a word.
  if (HasNvidiaDriver()) setup.notices.push_back("computing on the CPU: " + status.message());
  return Status::Ok();
}

Status ChooseDevice(RunSetup& setup) {
  const DeviceChoice choice = setup.options.device;
  if (choice != DeviceChoice::kCpu) MAREA_RETURN_IF_ERROR(ChooseGpu(setup));
  if (!setup.gpu && setup.options.optimizer_device == OptimizerDevice::kGpu) {
    return Status::InvalidArgument(
        "--optimizer-device cuda needs a GPU, and this run computes on the CPU");
  }
  return Status::Ok();
}

Status StartRuntime(RunSetup& setup) {
  MAREA_ASSIGN_OR_RETURN(const Topology topology, ReadTopology());
  const NumaHome home =
      ChooseNumaHome(topology, setup.world, setup.gpu ? NumaNodeOfPci(setup.gpu->pci) : -1);
  setup.threads = setup.options.threads.value_or(home.cores);
  if (setup.threads == 0 || setup.threads > 1024) {
    return Status::InvalidArgument("--threads must be between 1 and 1024");
  }
  if (home.node) {
    // This thread, and all that it starts from here on.
    const Status bound = BindThisThreadToNode(*home.node);
    if (bound.ok()) setup.numa_node = home.node;
    if (!bound.ok()) setup.warnings.push_back(bound.message());
  }
  // The CPU's kernels are deterministic in any case.
  StartTorchRuntime(
      {.threads = setup.threads, .deterministic = !setup.gpu || setup.options.deterministic});
  return Status::Ok();
}

Status LoadConfig(RunSetup& setup) {
  ConfigOverrides overrides;
  overrides.world_size = setup.world.size;
  overrides.micro_batch = setup.options.micro_batch;
  overrides.learning_rate = setup.options.learning_rate;
  overrides.total_steps = setup.options.steps;
  overrides.nvme_paths_given = !setup.options.nvme.empty();
  if (setup.options.config_path.empty()) {
    MAREA_ASSIGN_OR_RETURN(setup.config, DefaultTrainingConfig(overrides));
  } else {
    MAREA_ASSIGN_OR_RETURN(setup.config, LoadTrainingConfig(setup.options.config_path, overrides));
  }
  Append(setup.warnings, setup.config.warnings);
  Append(setup.notices, setup.config.notices);
  return Status::Ok();
}

// Before model and data are read, which can take a while: a wrong path is found at once.
Status FindBudgets(RunSetup& setup) {
  MAREA_ASSIGN_OR_RETURN(ResolvedBudgets resolved,
                         ResolveBudgets(setup.options, setup.config, setup.gpu));
  Append(setup.warnings, resolved.warnings);
  setup.budgets = resolved.budgets;
  setup.store_paths = std::move(resolved.store_paths);
  // RAM and NVMe are the node's, and its ranks share them evenly.
  const uint32_t ranks = setup.world.local_size;
  setup.budgets.ram_bytes /= ranks;
  setup.budgets.nvme_bytes /= ranks;
  for (StorePath& path : setup.store_paths) path.bytes_max /= ranks;
  return Status::Ok();
}

Status LoadModel(RunSetup& setup) {
  MAREA_ASSIGN_OR_RETURN(setup.folder, OpenModelFolder(setup.options.model_path));
  Append(setup.notices, setup.folder.notices);
  MAREA_ASSIGN_OR_RETURN(const ModelConfig model,
                         ParseModelConfig(setup.folder.config_text, setup.folder.config_path));
  Append(setup.notices, model.notices);
  setup.batch.sequences = setup.config.batch.micro_batch;
  setup.batch.sequence_length =
      setup.options.sequence_length.value_or(std::min(model.max_positions, kSequenceLengthDefault));
  MAREA_RETURN_IF_ERROR(CheckBatchShape(model, setup.batch));
  setup.model = std::make_unique<ModelShape>(
      MakeModelShape(model, setup.batch, setup.config.precision,
                     setup.gpu ? ComputeTarget::Gpu(setup.gpu->sm_count) : setup.threads));
  PadGroups(setup.world.size, *setup.model);
  if (setup.folder.weights_path) {
    MAREA_ASSIGN_OR_RETURN(setup.weights,
                           ModelWeights::Open(*setup.folder.weights_path, *setup.model));
    Append(setup.notices, setup.weights->notices());
  }
  return Status::Ok();
}

Status LoadData(RunSetup& setup) {
  const auto open = [&](const std::string& path) {
    return Dataset::Open({path, setup.batch.sequence_length, setup.model->config.vocabulary});
  };
  BatchOptions batching{.micro_batch = setup.batch.sequences,
                        .accumulation_steps = setup.config.batch.accumulation_steps,
                        .world_size = setup.world.size,
                        .rank = setup.world.rank,
                        .seed = setup.options.seed};
  MAREA_ASSIGN_OR_RETURN(setup.data, open(setup.options.data_path));
  if (!setup.data->source().notice().empty()) {
    setup.notices.push_back(setup.data->source().notice());
  }
  setup.batches = std::make_unique<BatchSource>(*setup.data, batching);
  if (setup.options.eval_data_path) {
    MAREA_ASSIGN_OR_RETURN(setup.eval_data, open(*setup.options.eval_data_path));
    batching.order = SampleOrder::kSequential;
    setup.eval_batches = std::make_unique<BatchSource>(*setup.eval_data, batching);
  }
  return Status::Ok();
}

Status CountSteps(RunSetup& setup) {
  setup.steps = setup.options.steps.value_or(setup.options.epochs.value_or(1) *
                                             setup.batches->steps_per_pass());
  if (setup.config.schedule_needs_total_steps) {
    setup.config.schedule.total_num_steps = static_cast<int64_t>(setup.steps);
    MAREA_RETURN_IF_ERROR(CheckLrSchedule(setup.config.schedule));
  }
  return Status::Ok();
}

std::optional<Tier> FixedHome(const OffloadConfig& section) {
  if (!section.present || section.device == OffloadDevice::kNone) return std::nullopt;
  return section.device == OffloadDevice::kCpu ? Tier::kRam : Tier::kNvme;
}

// What the process holds before the plan's arenas. Ranks must come to the same plan although no two
// processes are of quite the same size, so theirs is rounded up.
uint64_t ProcessBytes(const RunSetup& setup, const ProcessMemory& process) {
  constexpr uint64_t kRankStep = 128 * kMiB;
  return setup.world.size == 1 ? process.resident_bytes
                               : RoundUp(process.resident_bytes, kRankStep);
}

uint64_t GpuFixedBytes(const RunSetup& setup) {
  if (!setup.gpu) return 0;
  return kGpuProcessBytes + (setup.world.size > 1 ? kNcclVramBytes : 0);
}

Status MakePlan(RunSetup& setup) {
  MAREA_ASSIGN_OR_RETURN(const ProcessMemory process, ReadProcessMemory());
  const uint64_t token_bytes = uint64_t{12} * setup.batch.sequences * setup.batch.sequence_length *
                               setup.config.batch.accumulation_steps;
  PlanRequest request;
  request.model = setup.model.get();
  request.partition = {setup.world.size, setup.world.rank, setup.config.zero.stage,
                       setup.config.zero.persistence_threshold};
  request.precision = setup.config.precision;
  request.gradient_precision = setup.config.gradient_type;
  request.micro_count = setup.config.batch.accumulation_steps;
  request.wave_size = setup.options.wave_size;
  request.weight_home = FixedHome(setup.config.zero.offload_param);
  request.state_home = FixedHome(setup.config.zero.offload_optimizer);
  request.vram_kind = setup.gpu ? VramKind::kDevice : VramKind::kInsideRam;
  request.optimizer_device = setup.options.optimizer_device;
  request.vram_fixed_bytes = GpuFixedBytes(setup);
  request.vram_bytes = setup.budgets.vram_bytes;
  request.ram_bytes = setup.budgets.ram_bytes;
  request.ram_fixed_bytes = ProcessBytes(setup, process) + token_bytes +
                            CommunicatorBytes(setup.world) +
                            (setup.gpu ? kGpuProcessGrowthBytes : kProcessGrowthBytes);
  request.nvme_bytes = setup.budgets.nvme_bytes;
  request.nvme_paths = static_cast<uint32_t>(setup.store_paths.size());
  request.slots = setup.options.slots;
  MAREA_ASSIGN_OR_RETURN(setup.planned, PlanRun(request));
  if (setup.options.slots == 1 && !setup.planned.chunks.entries.empty()) {
    setup.warnings.push_back(
        "--slots 1: half the space on NVMe, but a run that is interrupted cannot be resumed");
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<RunSetup>> PrepareRun(const RunOptions& options, const World& world) {
  auto setup = std::make_unique<RunSetup>();
  setup->options = options;
  setup->world = world;
  MAREA_RETURN_IF_ERROR(CheckFlags(options));
  MAREA_RETURN_IF_ERROR(ChooseDevice(*setup));
  MAREA_RETURN_IF_ERROR(LoadConfig(*setup));
  MAREA_RETURN_IF_ERROR(FindBudgets(*setup));
  MAREA_RETURN_IF_ERROR(StartRuntime(*setup));
  MAREA_RETURN_IF_ERROR(LoadModel(*setup));
  MAREA_RETURN_IF_ERROR(LoadData(*setup));
  MAREA_RETURN_IF_ERROR(CountSteps(*setup));
  MAREA_RETURN_IF_ERROR(MakePlan(*setup));
  return setup;
}

}  // namespace marea
