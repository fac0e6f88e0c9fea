#include "engine/train/run_resources.h"

#include <algorithm>
#include <chrono>

#include "engine/model/torch_cuda.h"
#include "engine/train/path_shares.h"
#include "io/steady_seconds.h"
#include "io/units.h"
#include "swap/cpu_device.h"
#include "swap/cuda_device.h"

namespace marea {
namespace {

std::span<std::byte> StagingOf(const StepPlan& plan, std::span<std::byte> ram) {
  for (const Ring& ring : plan.rings) {
    if (ring.space == Space::kRam) return ram.subspan(ring.offset, ring.bytes);
  }
  return {};
}

BlockDeviceOptions DeviceOptions(const AioConfig& aio) {
  BlockDeviceOptions options;
  if (aio.queue_depth) options.queue_depth = static_cast<uint32_t>(*aio.queue_depth);
  if (aio.block_size) options.request_bytes = *aio.block_size;
  return options;
}

}  // namespace

Result<std::unique_ptr<RunResources>> RunResources::Create(
    const RunSetup& setup, const RunRanks* ranks, const std::atomic<bool>& stop,
    const std::function<void(uint64_t, uint64_t)>& progress) {
  std::unique_ptr<RunResources> resources(new RunResources(setup, ranks, stop));
  MAREA_RETURN_IF_ERROR(resources->OpenDevice());
  MAREA_RETURN_IF_ERROR(resources->MeasurePathSpeeds());
  MAREA_RETURN_IF_ERROR(resources->AllocateArenas());
  MAREA_RETURN_IF_ERROR(resources->OpenTier(progress));
  MAREA_RETURN_IF_ERROR(resources->MakeRunners());
  return resources;
}

RunResources::~RunResources() {
  (void)Shutdown();
}

int RunResources::NumaNode() const {
  return setup_.numa_node.value_or(kAnyNumaNode);
}

Status RunResources::OpenDevice() {
  const StepPlan& plan = setup_.planned.plan;
  const uint64_t vram_bytes = plan.space_bytes[static_cast<int>(Space::kVram)];
  if (setup_.gpu) {
    // Torch's share first: the arena is the larger, and its refusal names the figures.
    MAREA_RETURN_IF_ERROR(ReserveTorchMemory(setup_.gpu->index, setup_.planned.workspace_bytes));
    CudaDeviceOptions options;
    options.gpu = setup_.gpu->index;
    options.vram_bytes = vram_bytes;
    options.compute_stream = TorchComputeStream(setup_.gpu->index);
    if (ranks_) options.comm_stream = ranks_->lane().stream();
    MAREA_ASSIGN_OR_RETURN(device_, MakeCudaDevice(plan, options));
  } else {
    MAREA_ASSIGN_OR_RETURN(device_, CpuDevice::Create(vram_bytes, NumaNode()));
  }
  bases_[static_cast<int>(Space::kVram)] = device_->vram().data();
  warnings_.insert(warnings_.end(), device_->warnings().begin(), device_->warnings().end());
  return Status::Ok();
}

// Before the arenas, so that its buffers are gone when they come.
Status RunResources::MeasurePathSpeeds() {
  const ChunkTable& chunks = setup_.planned.chunks;
  if (chunks.entries.empty() || store_paths_.size() < 2) return Status::Ok();
  // What does not fit is said before anything is written.
  MAREA_RETURN_IF_ERROR(LayOutStore(chunks, store_paths_, setup_.options.slots).status());
  MAREA_ASSIGN_OR_RETURN(const std::vector<DriveSpeed> speeds,
                         MeasurePaths(DeviceOptions(setup_.config.aio), store_paths_));
  MAREA_ASSIGN_OR_RETURN(const StoreLayout layout,
                         LayOutStore(chunks, store_paths_, setup_.options.slots));
  notices_.push_back(SharesText(store_paths_, speeds, layout));
  return Status::Ok();
}

Status RunResources::AllocateArenas() {
  const auto& space_bytes = setup_.planned.plan.space_bytes;
  const auto allocate = [&](Space space, std::optional<PinnedArena>& arena) -> Status {
    ArenaOptions options;
    options.bytes = std::max(kPageBytes, space_bytes[static_cast<int>(space)]);
    options.numa_node = NumaNode();
    options.registrar = device_->registrar();
    MAREA_ASSIGN_OR_RETURN(arena, PinnedArena::Create(options));
    bases_[static_cast<int>(space)] = arena->bytes().data();
    warnings_.insert(warnings_.end(), arena->warnings().begin(), arena->warnings().end());
    return Status::Ok();
  };
  MAREA_RETURN_IF_ERROR(allocate(Space::kRam, ram_));
  return allocate(Space::kScalar, scalars_);
}

Status RunResources::OpenTier(const std::function<void(uint64_t, uint64_t)>& progress) {
  if (setup_.planned.chunks.entries.empty()) return Status::Ok();
  NvmeTierOptions options;
  options.slots = setup_.options.slots;
  if (ranks_) options.file_name += ".rank" + std::to_string(setup_.world.rank);
  options.file.progress = [&](uint64_t done, uint64_t all) {
    progress(done, all);
    return Status::Ok();
  };
  options.clock = SteadySeconds;
  options.device = DeviceOptions(setup_.config.aio);
  const std::span<std::byte> buffers[] = {ram_->bytes()};
  MAREA_ASSIGN_OR_RETURN(tier_,
                         NvmeTier::Create(setup_.planned.chunks, store_paths_, buffers, options));
  if (setup_.world.local_rank > 0) return Status::Ok();
  std::vector<std::string> names;
  for (const StorePath& path : store_paths_) names.push_back(path.path);
  path_watch_.emplace(std::move(names));
  return Status::Ok();
}

Status RunResources::MakeRunners() {
  const StepPlan& plan = setup_.planned.plan;
  StepRunnerOptions options;
  options.spec = &setup_.planned.spec;
  options.device = device_.get();
  if (setup_.gpu) options.gpu = setup_.gpu->index;
  options.batch = setup_.batch;
  options.gradient_clipping = setup_.config.gradient_clipping;
  // On a GPU some cores are for those who feed it; memory bandwidth is used up by fewer anyway.
  options.optimizer_threads =
      setup_.gpu ? std::max(1u, setup_.threads - setup_.threads / 4) : setup_.threads;
  options.simd_level = setup_.simd_level;
  options.stop = &stop_;
  if (ranks_) {
    options.comm = &ranks_->lane();
    options.sums = ranks_->sums.get();
  }
  MAREA_ASSIGN_OR_RETURN(step_runner_, StepRunner::Create(options));
  swapper_ = std::make_unique<Swapper>(
      SwapperParts{plan, setup_.planned.chunks, tier_.get(), *device_, *step_runner_});
  shards_ = std::make_unique<ShardAccess>(*swapper_, bases_, StagingOf(plan, ram_->bytes()));
  trace_ = std::make_unique<TraceRecorder>(plan);
  stats_ = std::make_unique<SwapStats>(plan, SteadySeconds);
  Executor::Options executor;
  executor.bases = bases_;
  executor.clock = SteadySeconds;
  executor.observers = {trace_.get(), stats_.get()};
  executor.launch_depth = device_->launch_depth();
  executor_ = std::make_unique<Executor>(plan, *swapper_, executor);
  return Status::Ok();
}

PathSample RunResources::SamplePaths() const {
  return {tier_->flows(), executor_->stall_seconds(), SteadySeconds()};
}

std::vector<std::string> RunResources::WatchPaths() {
  if (!path_watch_) return {};
  return path_watch_->OnStep(SamplePaths());
}

void RunResources::RestartPathWatch() {
  if (path_watch_) path_watch_->Begin(SamplePaths());
}

void RunResources::Cancel(const Status& status) {
  MutexLock lock(executor_mutex_);
  if (executor_) executor_->Cancel(status);
}

Status RunResources::Shutdown() {
  Status status = Status::Ok();
  const auto note = [&](const Status& other) {
    if (status.ok() && !other.ok()) status = other;
  };
  {
    MutexLock lock(executor_mutex_);
    executor_.reset();
  }
  shards_.reset();
  if (swapper_) note(swapper_->Shutdown());
  if (step_runner_) step_runner_->Shutdown();
  if (device_) note(device_->Shutdown());
  if (tier_) note(tier_->Shutdown());
  swapper_.reset();
  tier_.reset();
  for (std::optional<PinnedArena>* arena : {&ram_, &scalars_}) {
    if (*arena) note((*arena)->Shutdown());
    arena->reset();
  }
  return status;
}

}  // namespace marea
