#include "engine/report/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/report/lane_json.h"
#include "engine/report/version.h"
#include "io/units.h"

namespace marea {
namespace {

using nlohmann::ordered_json;

// {"vram_bytes": ..., "ram_bytes": ..., "nvme_bytes": ...}
ordered_json TiersJson(const RunSummary& summary, uint64_t TierUse::*field) {
  ordered_json json;
  for (int tier = 0; tier < kTierCount; ++tier) {
    json[fmt::format("{}_bytes", TierName(static_cast<Tier>(tier)))] = summary.tiers[tier].*field;
  }
  return json;
}

ordered_json PlacementJson(const TierKindBytes& placement) {
  ordered_json json;
  for (int tier = 0; tier < kTierCount; ++tier) {
    ordered_json& kinds = json[TierName(static_cast<Tier>(tier))] = ordered_json::object();
    for (int kind = 0; kind < kShardKindCount; ++kind) {
      if (placement[tier][kind] == 0) continue;
      kinds[ShardKindName(static_cast<ShardKind>(kind))] = placement[tier][kind];
    }
  }
  return json;
}

template <typename T>
ordered_json OrNull(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

double TokensPerSecond(const RunSummary& summary) {
  return Rate(static_cast<double>(summary.tokens_per_step), summary.step_seconds_median);
}

std::string TierTable(const RunSummary& summary) {
  std::string text =
      fmt::format("  {:<12}{:>12}{:>12}{:>12}\n", "tier", "budget", "predicted", "peak");
  for (int tier = 0; tier < kTierCount; ++tier) {
    const TierUse& use = summary.tiers[tier];
    text += fmt::format("  {:<12}{:>12}{:>12}{:>12}\n", TierName(static_cast<Tier>(tier)),
                        FormatBytes(use.budget_bytes), FormatBytes(use.predicted_bytes),
                        FormatBytes(use.peak_bytes));
  }
  return text;
}

// One row a lane that did something. The compute lane's own stall is what it lost to no other.
std::string LaneTable(const RunSummary& summary) {
  std::string text = fmt::format("  {:<12}{:>10}{:>12}{:>12}{:>14}{:>18}\n", "lane", "ops", "bytes",
                                 "busy", "while busy", "compute waited");
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const LaneStats& stats = summary.lanes[lane];
    if (stats.op_count == 0 && summary.stall_seconds[lane] == 0) continue;
    const double rate = Rate(static_cast<double>(stats.bytes), stats.busy_seconds);
    text += fmt::format(
        "  {:<12}{:>10}{:>12}{:>12}{:>14}{:>18}\n", LaneName(static_cast<Lane>(lane)),
        stats.op_count, stats.bytes == 0 ? "-" : FormatBytes(stats.bytes),
        fmt::format("{:.2f} s", stats.busy_seconds), stats.bytes == 0 ? "-" : FormatRate(rate),
        fmt::format("{:.2f} s", summary.stall_seconds[lane]));
  }
  return text;
}

// How the ranks shared it, and the largest of them; the tables are of rank 0.
std::string RanksLine(const RunSummary& summary) {
  if (summary.ranks.empty()) return "";
  RankPeaks most;
  for (const RankPeaks& rank : summary.ranks) {
    most.vram_bytes = std::max(most.vram_bytes, rank.vram_bytes);
    most.ram_bytes = std::max(most.ram_bytes, rank.ram_bytes);
  }
  return fmt::format(
      "  {} ranks, ZeRO stage {}; at most {} of VRAM and {} of RAM a rank; below, "
      "rank 0\n",
      summary.world_size, summary.zero_stage, FormatBytes(most.vram_bytes),
      FormatBytes(most.ram_bytes));
}

}  // namespace

std::string ToJson(const RunSummary& summary) {
  ordered_json json;
  json["marea_version"] = Version();
  json["model"] = summary.model;
  json["device"] = summary.device;
  json["precision"] = summary.precision;
  json["parameters"] = summary.parameters;
  json["world_size"] = summary.world_size;
  json["zero_stage"] = summary.zero_stage;
  json["tokens_per_step"] = summary.tokens_per_step;
  json["steps"] = summary.steps;
  json["interrupted"] = summary.interrupted;
  json["loss_first"] = summary.loss_first;
  json["loss_last"] = summary.loss_last;
  if (summary.eval_loss_last) json["eval_loss_last"] = *summary.eval_loss_last;
  json["step_seconds_median"] = summary.step_seconds_median;
  json["tokens_per_second"] = TokensPerSecond(summary);
  json["run_seconds"] = summary.run_seconds;
  json["budgets"] = TiersJson(summary, &TierUse::budget_bytes);
  json["predicted_peaks"] = TiersJson(summary, &TierUse::predicted_bytes);
  json["peaks"] = TiersJson(summary, &TierUse::peak_bytes);
  for (const RankPeaks& rank : summary.ranks) {
    json["rank_peaks"].push_back({{"vram_bytes", rank.vram_bytes}, {"ram_bytes", rank.ram_bytes}});
  }
  json["placement"] = PlacementJson(summary.placement);
  json["predicted_step_seconds"] = OrNull(summary.predicted_step_seconds);
  json["bound_by"] = summary.bound_by;
  json["io_mode"] = summary.io_mode;
  json["io_mode_reason"] = summary.io_mode_reason;
  json["io_mode_remedy"] = summary.io_mode_remedy;
  if (summary.workspace) {
    json["workspace"] = {{"predicted_bytes", summary.workspace->predicted_bytes},
                         {"peak_bytes", summary.workspace->peak_bytes},
                         {"reserved_bytes", summary.workspace->reserved_bytes},
                         {"retry_count", summary.workspace->retry_count}};
  }
  json["lanes"] = LanesJson(summary.lanes);
  json["stall_seconds"] = StallJson(summary.stall_seconds);
  json["wave_size"] = summary.wave_size;
  json["micro_count"] = summary.micro_count;
  json["chunk_elements"] = summary.chunk_elements;
  json["threads"] = summary.threads;
  json["simd_level"] = summary.simd_level;
  return DumpJson(json, JsonStyle::kPretty);
}

std::string ToTable(const RunSummary& summary) {
  std::string text = fmt::format(
      "{}: {:.1f}M parameters, {} on {}, {} steps of {} tokens{}\n", summary.model,
      static_cast<double>(summary.parameters) / 1e6, summary.precision, summary.device,
      summary.steps, summary.tokens_per_step, summary.interrupted ? ", stopped early" : "");
  text += RanksLine(summary);
  text += fmt::format("  loss {:.4f} -> {:.4f}", summary.loss_first, summary.loss_last);
  if (summary.eval_loss_last) text += fmt::format(", evaluation {:.4f}", *summary.eval_loss_last);
  text += fmt::format("; {:.3f} s a step (median), {:.0f} tokens/s, {:.1f} s in all\n\n",
                      summary.step_seconds_median, TokensPerSecond(summary), summary.run_seconds);
  text += TierTable(summary) + "\n" + LaneTable(summary) + "\n";
  text += fmt::format("  bound by {}; wave of {} of {} micro-batches; {} threads, {}\n",
                      summary.bound_by, summary.wave_size, summary.micro_count, summary.threads,
                      summary.simd_level);
  text += fmt::format("  I/O mode: {}", summary.io_mode);
  if (!summary.io_mode_reason.empty()) text += " (" + summary.io_mode_reason + ")";
  if (!summary.io_mode_remedy.empty()) text += "; to lift it: " + summary.io_mode_remedy;
  return text + "\n";
}

}  // namespace marea
