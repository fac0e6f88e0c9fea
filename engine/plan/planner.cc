#include "engine/plan/planner.h"

#include <algorithm>
#include <optional>

#include "engine/plan/plan_compiler.h"
#include "engine/plan/tier_filler.h"
#include "io/units.h"
#include "swap/plan_check.h"
#include "swap/store_layout.h"

namespace marea {
namespace {

// Chunk sizes to choose from, in elements: the moments of a chunk are then 1 to 32 MiB.
constexpr uint64_t kChunkElementsMax = uint64_t{8} << 20;
constexpr uint64_t kChunkElementsMin = uint64_t{256} << 10;
// Chunks that staging should hold at once: two being read, one updated, one being written.
constexpr uint64_t kStagedChunks = 4;
// Staging takes at most this share of what RAM is left.
constexpr uint64_t kStagingShare = 4;
// ATen's temporaries are bounded by formula; this is the margin on it.
constexpr double kWorkspaceMargin = 1.1;

uint64_t WorkspaceBytes(const ModelShape& model) {
  uint64_t bytes = 0;
  for (const BlockShape& block : model.blocks) {
    bytes = std::max({bytes, block.forward_workspace_bytes, block.backward_workspace_bytes});
  }
  return static_cast<uint64_t>(static_cast<double>(bytes) * kWorkspaceMargin) +
         model.compute_fixed_bytes;
}

uint64_t LargestGroupElements(const ModelShape& model) {
  uint64_t elements = 0;
  for (const GroupShape& group : model.groups) elements = std::max(elements, group.elements);
  return elements;
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request), model_(*request.model), workspace_bytes_(WorkspaceBytes(model_)) {}

  // The first way that fits. If none does, what is missing is told of the way that needs least: for
  // VRAM the smallest wave, the last tried; for RAM and NVMe the largest, the first.
  Result<PlannedRun> Run() {
    std::optional<Status> first;
    Status last = Status::Ok();
    for (const uint32_t wave : WaveSizes()) {
      for (const Tier activation : {Tier::kVram, Tier::kRam}) {
        for (const GpuShare share : Shares()) {
          Result<PlannedRun> run = Try(wave, activation, share);
          if (run.ok() || run.status().code() != ErrorCode::kDoesNotFit) return run;
          last = run.status();
          if (!first && !last.message().starts_with("--vram")) first = last;
        }
      }
    }
    return first.value_or(last);
  }

 private:
  // The largest wave first: it fetches weights the fewest times.
  std::vector<uint32_t> WaveSizes() const {
    if (request_.wave_size) return {std::min(*request_.wave_size, request_.micro_count)};
    std::vector<uint32_t> sizes;
    for (uint32_t waves = 1; waves <= request_.micro_count; ++waves) {
      const uint32_t size = (request_.micro_count + waves - 1) / waves;
      if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
    }
    return sizes;
  }

  // How many of the groups that page are updated on the GPU.
  enum class GpuShare : uint8_t { kNone, kThird, kAll };

  std::vector<GpuShare> Shares() const {
    if (request_.vram_kind != VramKind::kDevice) return {GpuShare::kNone};
    if (request_.optimizer_device == OptimizerDevice::kGpu) return {GpuShare::kAll};
    // What a drive feeds is bound by the drive.
    if (request_.optimizer_device == OptimizerDevice::kCpu || request_.state_home == Tier::kNvme) {
      return {GpuShare::kNone};
    }
    return {GpuShare::kThird, GpuShare::kNone};
  }

  // By group.
  std::vector<bool> GroupsOf(GpuShare share) const {
    std::vector<bool> chosen(model_.groups.size(), share == GpuShare::kAll);
    if (share != GpuShare::kThird) return chosen;
    for (const BlockShape& block : model_.blocks) {
      if (block.kind != BlockKind::kLayer || block.layer % 3 != 1) continue;
      for (const uint32_t group : block.groups) chosen[group] = true;
    }
    return chosen;
  }

  Result<PlannedRun> Try(uint32_t wave, Tier activation, GpuShare share) {
    PlannedRun run;
    run.workspace_bytes = workspace_bytes_;
    PlanSpec& spec = run.spec;
    spec.model = &model_;
    spec.partition = request_.partition;
    spec.precision = request_.precision;
    spec.gradient_precision = request_.gradient_precision;
    spec.micro_count = request_.micro_count;
    spec.wave_size = wave;
    spec.placement.activation = activation;
    if (request_.vram_kind == VramKind::kDevice) {
      spec.gpu_update = GroupsOf(share);
    }
    MAREA_RETURN_IF_ERROR(FillTiers(Limits(), request_.weight_home, request_.state_home, spec));
    MAREA_ASSIGN_OR_RETURN(run.plan, CompileStepPlan(spec));
    MAREA_RETURN_IF_ERROR(CheckPlan(run.plan, spec.micro_count)
                              .WithContext("internal error: the plan contradicts itself"));
    run.chunks = MakeChunkTable(run.plan);
    MAREA_RETURN_IF_ERROR(Account(run));
    return run;
  }

  TierLimits Limits() const {
    TierLimits limits;
    limits.vram_bytes = request_.vram_bytes;
    limits.vram_inside_ram = request_.vram_kind == VramKind::kInsideRam;
    limits.ram_bytes = request_.ram_bytes;
    limits.ram_fixed_bytes = request_.ram_fixed_bytes;
    limits.workspace_bytes = workspace_bytes_;
    limits.vram_fixed_bytes = request_.vram_fixed_bytes;
    limits.whole_groups_in_vram = request_.vram_kind == VramKind::kDevice &&
                                  request_.optimizer_device != OptimizerDevice::kCpu;
    limits.nvme_bytes = request_.nvme_bytes;
    limits.slots = request_.slots;
    limits.chunk_elements_max = std::min(
        kChunkElementsMax,
        RoundUp(LargestGroupElements(model_) / request_.partition.world_size, kGroupAlignElements));
    limits.chunk_elements_min = std::min(kChunkElementsMin, limits.chunk_elements_max);
    limits.staged_chunks = kStagedChunks;
    limits.staging_share = kStagingShare;
    return limits;
  }

  // What the compiled plan really takes, against the budgets.
  Status Account(PlannedRun& run) const {
    for (const Buffer& buffer : run.plan.buffers) {
      if (buffer.ring != kHomeRing || buffer.space == Space::kScalar) continue;
      run.homes[static_cast<int>(buffer.space)][static_cast<int>(buffer.content.kind)] +=
          buffer.bytes;
    }
    const auto& space = run.plan.space_bytes;
    run.vram_peak_bytes =
        request_.vram_fixed_bytes + space[static_cast<int>(Space::kVram)] + workspace_bytes_;
    run.ram_peak_bytes = request_.ram_fixed_bytes + space[static_cast<int>(Space::kRam)];
    if (request_.vram_kind == VramKind::kInsideRam) run.ram_peak_bytes += run.vram_peak_bytes;
    if (!run.chunks.entries.empty()) {
      run.nvme_peak_bytes =
          StoreFileBytes(run.chunks, request_.slots, std::max(1u, request_.nvme_paths));
    }
    MAREA_CHECK(run.vram_peak_bytes <= request_.vram_bytes, "a plan exceeds --vram");
    MAREA_CHECK(run.ram_peak_bytes <= request_.ram_bytes, "a plan exceeds --ram");
    if (run.nvme_peak_bytes > request_.nvme_bytes) {
      return Status::DoesNotFit(NvmeShortage(run.nvme_peak_bytes, request_.nvme_bytes));
    }
    return Status::Ok();
  }

  const PlanRequest& request_;
  const ModelShape& model_;
  const uint64_t workspace_bytes_;
};

}  // namespace

Result<PlannedRun> PlanRun(const PlanRequest& request) {
  return Planner(request).Run();
}

}  // namespace marea
