#include "src/bench/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/report/lane_json.h"
#include "engine/report/version.h"
#include "io/memory_limits.h"
#include "io/topology.h"
#include "io/units.h"
#include "src/bench/sweep.h"

namespace marea {
namespace {

using nlohmann::ordered_json;

constexpr double kGb = 1e9;

double Microseconds(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e3;
}

ordered_json LinkJson(const std::optional<PcieLink>& link) {
  if (!link.has_value()) return nullptr;
  return {{"speed", link->speed},
          {"width", link->width},
          {"gb_per_second", link->bytes_per_second / kGb}};
}

ordered_json PathJson(const PathFacts& facts) {
  const DriveDetails& details = facts.details;
  ordered_json json;
  json["path"] = facts.folder;
  json["file_system"] = facts.directory.file_system;
  json["mount_point"] = details.mount_point;
  json["mount_options"] = details.mount_options;
  json["direct_io_alignment_bytes"] = facts.directory.alignment_bytes;
  json["device"] = details.drive.device;
  json["members"] = details.members;
  json["model"] = details.drive.model;
  json["scheduler"] = details.scheduler;
  json["request_bytes_max"] = details.request_bytes_max;
  json["numa_node"] = details.numa_node;
  json["link"] = LinkJson(details.link);
  json["link_max"] = LinkJson(details.link_max);
  if (details.celsius.has_value()) json["celsius"] = *details.celsius;
  json["warnings"] = facts.warnings;
  return json;
}

ordered_json EnvironmentJson(const BenchReport& report) {
  ordered_json json;
  json["marea"] = Version();
  json["kernel"] = KernelVersion();
  const Result<Topology> topology = ReadTopology();
  if (topology.ok()) {
    json["cpu"] = topology.value().cpu_model;
    json["hardware_threads"] = topology.value().thread_count;
  }
  if (!report.results.empty()) {
    const IoModeReport& mode = report.results.front().mode;
    json["io_mode"] = IoModeName(mode.mode);
    json["io_mode_reason"] = mode.reason;
    json["io_mode_cost"] = mode.cost;
    json["io_mode_remedy"] = mode.remedy;
  }
  ordered_json& paths = json["paths"] = ordered_json::array();
  for (const PathFacts& facts : report.paths) paths.push_back(PathJson(facts));
  return json;
}

// A figure carries what marks its paths, too.
std::vector<std::string> AllWarnings(const BenchResult& result, std::span<const PathFacts> paths) {
  std::vector<std::string> warnings;
  for (const PathFacts& facts : paths) {
    const bool used =
        std::find(result.paths.begin(), result.paths.end(), facts.folder) != result.paths.end();
    if (used) warnings.insert(warnings.end(), facts.warnings.begin(), facts.warnings.end());
  }
  warnings.insert(warnings.end(), result.warnings.begin(), result.warnings.end());
  return warnings;
}

ordered_json ResultJson(const BenchResult& result, std::span<const PathFacts> paths) {
  const LatencyHistogram& latency = result.measured.latency;
  ordered_json json;
  json["workload"] = WorkloadName(result.kind);
  json["paths"] = result.paths;
  json["block_bytes"] = result.shape.block_bytes;
  json["queue_depth"] = result.shape.queue_depth;
  json["seconds"] = result.measured.seconds;
  json["gb_per_second"] = result.bytes_per_second() / kGb;
  json["read_gb_per_second"] = result.read_bytes_per_second() / kGb;
  json["write_gb_per_second"] = result.write_bytes_per_second() / kGb;
  json["latency_us"] = {{"p50", Microseconds(latency.PercentileNs(0.50))},
                        {"p99", Microseconds(latency.PercentileNs(0.99))},
                        {"p999", Microseconds(latency.PercentileNs(0.999))},
                        {"max", Microseconds(latency.max_ns())}};
  json["cpu_core_ms_per_gb"] = result.cpu_core_ms_per_gb();
  json["data_core_ms_per_gb"] = result.data_core_ms_per_gb();
  json["link_share"] = result.link_bytes_per_second > 0
                           ? ordered_json(result.bytes_per_second() / result.link_bytes_per_second)
                           : ordered_json();
  json["warnings"] = AllWarnings(result, paths);
  return json;
}

ordered_json ComparisonJson(const FioComparison& comparison) {
  const auto side = [](const std::vector<double>& rates, const std::vector<double>& cpu) {
    ordered_json json;
    json["gb_per_second"] = Median(rates) / kGb;
    json["cpu_core_ms_per_gb"] = Median(cpu);
    ordered_json& runs = json["runs_gb_per_second"] = ordered_json::array();
    for (const double rate : rates) runs.push_back(rate / kGb);
    return json;
  };
  ordered_json json;
  json["workload"] = WorkloadName(comparison.kind);
  json["block_bytes"] = comparison.shape.block_bytes;
  json["queue_depth"] = comparison.shape.queue_depth;
  json["marea"] = side(comparison.marea_rates, comparison.marea_cpu);
  json["fio"] = side(comparison.fio_rates, comparison.fio_cpu);
  json["fio"]["huge_pages"] = comparison.fio_huge_pages;
  json["ratio"] = comparison.ratio();
  return json;
}

ordered_json BestJson(const BenchReport& report) {
  if (!report.best.has_value()) return ordered_json::object();
  ordered_json json;
  json["block_bytes"] = report.best->block_bytes;
  json["queue_depth"] = report.best->queue_depth;
  json["config"] = ordered_json::parse(fmt::format("{{{}}}", AioSection(*report.best)));
  return json;
}

std::string LinkText(const DriveDetails& details) {
  if (!details.link.has_value()) return "";
  return fmt::format(", {} x{} ({})", details.link->speed, details.link->width,
                     FormatRate(details.link->bytes_per_second));
}

// "1.23 ms", "950 us".
std::string LatencyText(uint64_t nanoseconds) {
  const double us = Microseconds(nanoseconds);
  return us < 1000 ? fmt::format("{:.0f} us", us) : fmt::format("{:.2f} ms", us / 1000);
}

std::string PathsColumn(const BenchResult& result) {
  if (result.paths.size() == 1) return result.paths.front();
  return fmt::format("all {} paths", result.paths.size());
}

}  // namespace

std::string ReportJson(const BenchReport& report) {
  ordered_json json;
  json["environment"] = EnvironmentJson(report);
  ordered_json& results = json["results"] = ordered_json::array();
  for (const BenchResult& result : report.results) {
    results.push_back(ResultJson(result, report.paths));
  }
  json["best"] = BestJson(report);
  if (!report.comparisons.empty()) {
    ordered_json& comparisons = json["comparison"] = ordered_json::array();
    for (const FioComparison& each : report.comparisons)
      comparisons.push_back(ComparisonJson(each));
  }
  if (!report.endurance.empty()) json["endurance"] = EnduranceJson(report.endurance);
  if (report.machine.has_value()) {
    json["machine_profile"] = ordered_json::parse(ToJson(*report.machine));
  }
  return DumpJson(json, JsonStyle::kPretty) + "\n";
}

std::string PathsText(std::span<const PathFacts> paths) {
  std::string text;
  for (const PathFacts& facts : paths) {
    const DriveDetails& details = facts.details;
    const std::string& device = details.drive.device;
    text += fmt::format("{}: {}", facts.folder, device.empty() ? "no drive of its own" : device);
    if (!details.drive.model.empty()) text += fmt::format(" {}", details.drive.model);
    text += LinkText(details);
    if (details.celsius.has_value()) text += fmt::format(", {:.0f} C", *details.celsius);
    text += fmt::format(
        "\n  {} ({}){}", facts.directory.file_system, details.mount_options,
        details.scheduler.empty() ? "" : fmt::format(", scheduler {}", details.scheduler));
    text += details.request_bytes_max == 0
                ? "\n"
                : fmt::format(", requests up to {}\n", FormatBytes(details.request_bytes_max));
    for (const std::string& warning : facts.warnings) text += fmt::format("  mark: {}\n", warning);
  }
  return text;
}

std::string ModeText(const IoModeReport& mode) {
  if (mode.reason.empty()) return fmt::format("I/O by {}\n", IoModeName(mode.mode));
  return fmt::format("I/O by {}: {}; {}{}\n", IoModeName(mode.mode), mode.reason, mode.cost,
                     mode.remedy.empty() ? "" : fmt::format("; to lift it: {}", mode.remedy));
}

std::string ResultsText(std::span<const BenchResult> results) {
  std::string text = fmt::format(
      "{:<12} {:>8} {:>5} {:>7} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>10} {:>6} "
      "{:>5}  {}\n",
      "workload", "block", "depth", "GB/s", "GiB/s", "read", "write", "p50", "p99", "p99.9", "max",
      "core-ms/GB", "data", "link", "path");
  std::vector<std::string> marks;
  for (const BenchResult& result : results) {
    const LatencyHistogram& latency = result.measured.latency;
    const double rate = result.bytes_per_second();
    const std::string share =
        result.link_bytes_per_second > 0
            ? fmt::format("{:.0f}%", 100 * rate / result.link_bytes_per_second)
            : "-";
    text += fmt::format(
        "{:<12} {:>8} {:>5} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>9} {:>9} {:>9} {:>9} {:>10.1f} "
        "{:>+6.1f} {:>5}  {}\n",
        WorkloadName(result.kind), FormatBytes(result.shape.block_bytes), result.shape.queue_depth,
        rate / kGb, rate / static_cast<double>(kGiB), result.read_bytes_per_second() / kGb,
        result.write_bytes_per_second() / kGb, LatencyText(latency.PercentileNs(0.5)),
        LatencyText(latency.PercentileNs(0.99)), LatencyText(latency.PercentileNs(0.999)),
        LatencyText(latency.max_ns()), result.cpu_core_ms_per_gb(), result.data_core_ms_per_gb(),
        share, PathsColumn(result));
    for (const std::string& warning : result.warnings) {
      const std::string mark = fmt::format("mark: {}\n", warning);
      if (std::find(marks.begin(), marks.end(), mark) == marks.end()) marks.push_back(mark);
    }
  }
  for (const std::string& mark : marks) text += mark;
  return text;
}

std::string ComparisonsText(std::span<const FioComparison> comparisons) {
  std::string text =
      fmt::format("{:<12} {:>8} {:>5} {:>11} {:>9} {:>7} {:>17} {:>15}\n", "median of", "block",
                  "depth", "marea GB/s", "fio GB/s", "ratio", "marea core-ms/GB", "fio core-ms/GB");
  for (const FioComparison& each : comparisons) {
    text += fmt::format("{:<12} {:>8} {:>5} {:>11.2f} {:>9.2f} {:>7.2f} {:>17.1f} {:>15.1f}\n",
                        fmt::format("{} {}", each.fio_rates.size(), WorkloadName(each.kind)),
                        FormatBytes(each.shape.block_bytes), each.shape.queue_depth,
                        Median(each.marea_rates) / kGb, Median(each.fio_rates) / kGb, each.ratio(),
                        Median(each.marea_cpu), Median(each.fio_cpu));
  }
  if (std::any_of(comparisons.begin(), comparisons.end(),
                  [](const FioComparison& each) { return !each.fio_huge_pages; })) {
    text +=
        "fio's buffers lay in pages of 4 KiB, marea's in huge ones; to give fio huge ones too: "
        "sysctl "
        "vm.nr_hugepages=N\n";
  }
  return text;
}

}  // namespace marea
