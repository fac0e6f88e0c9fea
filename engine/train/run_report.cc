#include "engine/train/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "engine/model/torch_cuda.h"

namespace marea {
namespace {

// Without the first step, which warms everything up, unless it is the only one.
double MedianWithoutFirst(std::vector<double> values) {
  if (values.size() > 1) values.erase(values.begin());
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void DescribeGpu(const RunSetup& setup, RunSummary& summary) {
  const TorchMemory torch = ReadTorchMemory(setup.gpu->index);
  summary.device = setup.gpu->name;
  summary.workspace = {setup.planned.workspace_bytes, torch.allocated_bytes_peak,
                       torch.reserved_bytes_peak, torch.retry_count};
}

void DescribeTiers(const RunSetup& setup, const RunMeasures& measures, RunSummary& summary) {
  const PlannedRun& planned = setup.planned;
  const auto tier = [&](Tier name) -> TierUse& { return summary.tiers[static_cast<int>(name)]; };
  tier(Tier::kVram) = {setup.budgets.vram_bytes, planned.vram_peak_bytes, measures.vram_peak_bytes};
  tier(Tier::kRam) = {setup.budgets.ram_bytes, planned.ram_peak_bytes, measures.ram_peak_bytes};
  tier(Tier::kNvme) = {setup.budgets.nvme_bytes, planned.nvme_peak_bytes, planned.nvme_peak_bytes};
  summary.placement = planned.homes;
}

// The lane that compute waited for most, if it waited longer than it computed.
std::string BoundBy(const RunSummary& summary) {
  const auto worst = std::max_element(summary.stall_seconds.begin(), summary.stall_seconds.end());
  const double computing = summary.lanes[static_cast<int>(Lane::kCompute)].busy_seconds;
  if (*worst <= computing) return "compute";
  return LaneName(static_cast<Lane>(worst - summary.stall_seconds.begin()));
}

}  // namespace

void FillSummary(const RunSetup& setup, RunResources& resources, const RunMeasures& measures,
                 RunSummary& summary) {
  summary.model = setup.options.model_path;
  summary.device = "cpu";
  if (setup.gpu) DescribeGpu(setup, summary);
  summary.precision = setup.config.precision == Precision::kBf16 ? "bf16" : "fp32";
  summary.parameters = setup.model->parameters;
  summary.world_size = setup.world.size;
  summary.zero_stage = setup.config.zero.stage;
  summary.tokens_per_step = setup.batches->samples_per_step() * setup.batch.sequence_length;
  summary.step_seconds_median = MedianWithoutFirst(measures.step_seconds);
  summary.run_seconds = measures.run_seconds;
  DescribeTiers(setup, measures, summary);
  summary.lanes = measures.lanes;
  summary.stall_seconds = resources.executor().stall_seconds();
  summary.bound_by = BoundBy(summary);
  const IoModeReport* mode = resources.io_mode();
  summary.io_mode = mode ? IoModeName(mode->mode) : "none";
  if (mode) {
    summary.io_mode_reason = mode->reason;
    summary.io_mode_remedy = mode->remedy;
  }
  const PlanSpec& spec = setup.planned.spec;
  summary.wave_size = spec.wave_size;
  summary.micro_count = spec.micro_count;
  summary.chunk_elements = spec.chunk_elements;
  summary.threads = setup.threads;
  summary.simd_level = SimdLevelName(setup.simd_level);
}

Status CollectRankPeaks(RankGroup& group, const RunMeasures& measures, RunSummary& summary) {
  MAREA_ASSIGN_OR_RETURN(const std::vector<std::string> peaks,
                         group.Exchange("peaks", fmt::format("{} {}", measures.vram_peak_bytes,
                                                             measures.ram_peak_bytes)));
  for (const std::string& text : peaks) {
    RankPeaks& rank = summary.ranks.emplace_back();
    std::istringstream(text) >> rank.vram_bytes >> rank.ram_bytes;
  }
  return Status::Ok();
}

}  // namespace marea
