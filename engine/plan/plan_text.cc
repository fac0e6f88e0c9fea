#include "engine/plan/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/plan/plan_names.h"
#include "engine/plan/plan_totals.h"
#include "io/units.h"

namespace marea {
namespace {

// Rows of cells, each column as wide as its widest cell; the first column is to the left.
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line = fmt::format("  {:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    text += line + "\n";
  }
  return text;
}

std::string BytesOrDash(uint64_t bytes) {
  return bytes == 0 ? "-" : FormatBytes(bytes);
}

// `budget_bytes` is null where it is not known.
std::string TierTable(const TierKindBytes& homes, const TierBytes& peak_bytes,
                      const TierBytes* budget_bytes) {
  std::vector<int> kinds;  // that rest anywhere
  for (int kind = 0; kind < kShardKindCount; ++kind) {
    for (int tier = 0; tier < kTierCount; ++tier) {
      if (homes[tier][kind] > 0 && (kinds.empty() || kinds.back() != kind)) kinds.push_back(kind);
    }
  }
  std::vector<std::vector<std::string>> rows = {{"tier"}};
  if (budget_bytes != nullptr) rows[0].push_back("budget");
  rows[0].push_back("predicted");
  for (const int kind : kinds) rows[0].push_back(ShardKindName(static_cast<ShardKind>(kind)));
  for (int tier = 0; tier < kTierCount; ++tier) {
    std::vector<std::string>& row =
        rows.emplace_back(1, std::string(TierName(static_cast<Tier>(tier))));
    if (budget_bytes != nullptr) row.push_back(BytesOrDash((*budget_bytes)[tier]));
    row.push_back(BytesOrDash(peak_bytes[tier]));
    for (const int kind : kinds) row.push_back(BytesOrDash(homes[tier][kind]));
  }
  return AlignColumns(rows);
}

std::string RingTable(const StepPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"ring", "tier", "bytes"}};
  for (const Ring& ring : plan.rings) {
    if (ring.bytes == 0) continue;
    rows.push_back({ring.name, SpaceName(ring.space), FormatBytes(ring.bytes)});
  }
  return rows.size() == 1 ? "" : AlignColumns(rows) + "\n";
}

std::string SecondsText(const LaneTime& time) {
  return time.seconds.has_value() ? fmt::format("{:.3g}", *time.seconds) : "?";
}

std::string LaneTable(const StepPlan& plan, uint32_t micro_count,
                      const StepEstimate* estimate = nullptr) {
  const PlannedLanes lanes = CountLanes(plan, SteadyTurn(micro_count));
  std::string text = "  a step, once it is under way:\n";
  std::vector<std::vector<std::string>> rows = {{"lane", "ops", "bytes", "depth"}};
  if (estimate != nullptr) rows[0].emplace_back("seconds");
  std::vector<std::string> kinds = {"of which"};
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const PlannedLane& planned = lanes[lane];
    if (planned.op_count == 0) continue;
    rows.push_back({LaneName(static_cast<Lane>(lane)), fmt::format("{}", planned.op_count),
                    BytesOrDash(planned.bytes), fmt::format("{}", plan.lane_depth[lane])});
    if (estimate != nullptr) rows.back().push_back(SecondsText(estimate->lanes[lane]));
    std::string& list = kinds.emplace_back();
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      if (planned.ops_by_kind[kind] == 0) continue;
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", planned.ops_by_kind[kind],
                          OpKindName(static_cast<OpKind>(kind)));
    }
  }
  // The kinds come after the aligned columns: they are of any length.
  const std::string table = AlignColumns(rows);
  size_t begin = 0;
  for (const std::string& list : kinds) {
    const size_t end = table.find('\n', begin);
    text += table.substr(begin, end - begin) + "  " + list + "\n";
    begin = end + 1;
  }
  return text;
}

std::string Header(const std::string& precision, uint64_t parameters, uint32_t micro_count,
                   uint32_t wave_size, uint64_t chunk_elements) {
  return fmt::format(
      "  {:.1f}M parameters in {}; a step has {} micro-batch{}, in waves of {}; chunks of {} "
      "elements\n",
      static_cast<double>(parameters) / 1e6, precision, micro_count, micro_count == 1 ? "" : "es",
      wave_size, chunk_elements);
}

}  // namespace

std::string PlacementTable(const PlannedRun& planned, const TierBytes& budget_bytes) {
  const TierBytes peaks = {planned.vram_peak_bytes, planned.ram_peak_bytes,
                           planned.nvme_peak_bytes};
  return Header(PrecisionName(planned.spec.precision), planned.spec.model->parameters,
                planned.spec.micro_count, planned.spec.wave_size, planned.spec.chunk_elements) +
         TierTable(planned.homes, peaks, &budget_bytes);
}

std::string PlanTable(const PlannedRun& planned, const TierBytes& budget_bytes,
                      const StepEstimate* estimate) {
  return PlacementTable(planned, budget_bytes) + "\n" + RingTable(planned.plan) +
         LaneTable(planned.plan, planned.spec.micro_count, estimate);
}

std::string PlanTable(const PlanFile& file) {
  return Header(file.precision, file.parameters, file.micro_count, file.wave_size,
                file.chunk_elements) +
         TierTable(file.homes, file.peak_bytes, nullptr) + "\n" + RingTable(file.plan) +
         LaneTable(file.plan, file.micro_count);
}

std::string OpsText(const StepPlan& plan) {
  std::string text;
  for (const Op& op : plan.ops) text += Describe(plan, op) + "\n";
  return text;
}

}  // namespace marea
