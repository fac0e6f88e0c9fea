#include "src/bench/machine_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "io/check.h"

namespace marea {
namespace {

struct FigureText {
  const char* name;
  double unit;
  const char* unit_name;
};

// By MachineFigure.
constexpr std::array<FigureText, kMachineFigureCount> kFigureTexts = {{
    {"RAM copy", 1e9, "GB/s, read and written"},
    {"AdamW", 1e6, "million parameters/s"},
    {"CPU matmul, fp32", 1e9, "GFLOP/s"},
    {"CPU matmul, bf16", 1e9, "GFLOP/s"},
    {"RAM to VRAM", 1e9, "GB/s"},
    {"VRAM to RAM", 1e9, "GB/s"},
    {"RAM to VRAM, both ways at once", 1e9, "GB/s"},
    {"VRAM to RAM, both ways at once", 1e9, "GB/s"},
    {"GPU matmul, bf16", 1e12, "TFLOP/s"},
    {"all-gather", 1e9, "GB/s to each rank"},
}};

const BenchResult& Find(std::span<const BenchResult> results, WorkloadKind kind,
                        std::span<const std::string> paths) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const BenchResult& each) {
    return each.kind == kind && std::ranges::equal(each.paths, paths);
  });
  MAREA_CHECK(found != results.end(), "a drive without its measurements");
  return *found;
}

Result<DriveRates> RatesOf(std::span<const BenchResult> results,
                           std::span<const std::string> paths) {
  const BenchResult& mixed = Find(results, WorkloadKind::kMixed, paths);
  const DriveRates rates{
      .read = Find(results, WorkloadKind::kRead, paths).read_bytes_per_second(),
      .write = Find(results, WorkloadKind::kWrite, paths).write_bytes_per_second(),
      .mixed_read = mixed.read_bytes_per_second(),
      .mixed_write = mixed.write_bytes_per_second()};
  if (std::min({rates.read, rates.write, rates.mixed_read, rates.mixed_write}) > 0) return rates;
  return Status::InvalidArgument(
      fmt::format("{}: the time was too short for a request to complete: give a longer --seconds",
                  paths.front()));
}

}  // namespace

Status AddDrives(std::span<const PathFacts> paths, std::span<const BenchResult> results,
                 MachineProfile* profile) {
  std::vector<std::string> folders;
  for (const PathFacts& facts : paths) {
    folders.push_back(facts.folder);
    MAREA_ASSIGN_OR_RETURN(const DriveRates rates, RatesOf(results, {&folders.back(), 1}));
    profile->drives.push_back(
        {.path = facts.folder, .model = facts.details.drive.model, .rates = rates});
  }
  if (!folders.empty()) profile->no_drives_reason.clear();
  if (folders.size() > 1) {
    MAREA_ASSIGN_OR_RETURN(profile->drives_together, RatesOf(results, folders));
  }
  return Status::Ok();
}

std::string MachineText(const MachineProfile& profile) {
  std::string text = fmt::format("{}, {} of {} hardware threads used", profile.cpu, profile.threads,
                                 profile.hardware_threads);
  for (const std::string& gpu : profile.gpus) text += ", " + gpu;
  text += "\n";
  std::vector<std::pair<std::string, std::string>> reasons;  // and its figures
  for (int i = 0; i < kMachineFigureCount; ++i) {
    const FigureText& figure = kFigureTexts[i];
    const Measured& measured = profile.figures[i];
    if (measured.per_second.has_value()) {
      text += fmt::format("{:<31} {:>10.2f} {}\n", figure.name, *measured.per_second / figure.unit,
                          figure.unit_name);
    } else if (!reasons.empty() && reasons.back().first == measured.reason) {
      reasons.back().second += fmt::format("; {}", figure.name);
    } else {
      reasons.emplace_back(measured.reason, figure.name);
    }
  }
  if (profile.drives.empty()) reasons.emplace_back(profile.no_drives_reason, "drives");
  for (const auto& [reason, figures] : reasons) {
    text += fmt::format("not measured: {}: {}\n", figures, reason);
  }
  return text;
}

}  // namespace marea
