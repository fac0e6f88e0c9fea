#include "engine/train/run_resources.h"

#include <algorithm>
#include <chrono>

#include "io/units.h"

namespace marea {
namespace {

std::span<std::byte> StagingOf(const StepPlan& plan, std::span<std::byte> ram) {
  for (const Ring& ring : plan.rings) {
    if (ring.space == Space::kRam) return ram.subspan(ring.offset, ring.bytes);
  }
  return {};
}

}  // namespace

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<std::unique_ptr<RunResources>> RunResources::Create(
    const RunSetup& setup, const std::function<void(uint64_t, uint64_t)>& progress) {
  std::unique_ptr<RunResources> resources(new RunResources(setup));
  MAREA_RETURN_IF_ERROR(resources->AllocateArenas());
  MAREA_RETURN_IF_ERROR(resources->OpenTier(progress));
  MAREA_RETURN_IF_ERROR(resources->MakeRunners());
  return resources;
}

RunResources::~RunResources() {
  (void)Shutdown();
}

Status RunResources::AllocateArenas() {
  const auto& space_bytes = setup_.planned.plan.space_bytes;
  const auto allocate = [&](Space space, std::optional<PinnedArena>& arena) -> Status {
    ArenaOptions options;
    options.bytes = std::max(kPageBytes, space_bytes[static_cast<int>(space)]);
    MAREA_ASSIGN_OR_RETURN(arena, PinnedArena::Create(options));
    bases_[static_cast<int>(space)] = arena->bytes().data();
    warnings_.insert(warnings_.end(), arena->warnings().begin(), arena->warnings().end());
    return Status::Ok();
  };
  MAREA_RETURN_IF_ERROR(allocate(Space::kVram, vram_));
  MAREA_RETURN_IF_ERROR(allocate(Space::kRam, ram_));
  scalars_.assign(DivideRoundUp(space_bytes[static_cast<int>(Space::kScalar)], sizeof(double)), 0);
  bases_[static_cast<int>(Space::kScalar)] = reinterpret_cast<std::byte*>(scalars_.data());
  return Status::Ok();
}

Status RunResources::OpenTier(const std::function<void(uint64_t, uint64_t)>& progress) {
  if (setup_.planned.chunks.entries.empty()) return Status::Ok();
  NvmeTierOptions options;
  options.slots = setup_.options.slots;
  options.file.progress = [&](uint64_t done, uint64_t all) {
    progress(done, all);
    return Status::Ok();
  };
  const AioConfig& aio = setup_.config.aio;
  if (aio.queue_depth) options.device.queue_depth = static_cast<uint32_t>(*aio.queue_depth);
  if (aio.block_size) options.device.request_bytes = *aio.block_size;
  const std::span<std::byte> buffers[] = {ram_->bytes()};
  MAREA_ASSIGN_OR_RETURN(
      tier_, NvmeTier::Create(setup_.planned.chunks, setup_.store_paths, buffers, options));
  return Status::Ok();
}

Status RunResources::MakeRunners() {
  const StepPlan& plan = setup_.planned.plan;
  StepRunnerOptions options;
  options.spec = &setup_.planned.spec;
  options.batch = setup_.batch;
  options.gradient_clipping = setup_.config.gradient_clipping;
  options.optimizer_threads = setup_.threads;
  options.simd_level = setup_.simd_level;
  MAREA_ASSIGN_OR_RETURN(step_runner_, StepRunner::Create(options));
  device_copy_ = std::make_unique<MemcpyDeviceCopy>();
  swapper_ = std::make_unique<Swapper>(
      SwapperParts{plan, setup_.planned.chunks, tier_.get(), *device_copy_, *step_runner_, stats_});
  shards_ = std::make_unique<ShardAccess>(*swapper_, bases_, StagingOf(plan, ram_->bytes()));
  trace_ = std::make_unique<TraceRecorder>(plan);
  executor_ = std::make_unique<Executor>(plan, *swapper_,
                                         Executor::Options{bases_, SteadySeconds, trace_.get()});
  return Status::Ok();
}

Status RunResources::Shutdown() {
  Status status = Status::Ok();
  const auto note = [&](const Status& other) {
    if (status.ok() && !other.ok()) status = other;
  };
  executor_.reset();
  shards_.reset();
  if (swapper_) note(swapper_->Shutdown());
  if (device_copy_) device_copy_->Shutdown();
  if (step_runner_) step_runner_->Shutdown();
  if (tier_) note(tier_->Shutdown());
  swapper_.reset();
  tier_.reset();
  for (std::optional<PinnedArena>* arena : {&ram_, &vram_}) {
    if (*arena) note((*arena)->Shutdown());
    arena->reset();
  }
  return status;
}

}  // namespace marea
