// The keys and figures of metrics.jsonl and summary.json, which scripts read for years.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/report/metrics_writer.h"
#include "engine/report/run_summary.h"
#include "engine/report/step_metrics.h"
#include "engine/report/version.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

using nlohmann::json;

std::set<std::string> Keys(const json& object) {
  std::set<std::string> keys;
  for (const auto& item : object.items()) keys.insert(item.key());
  return keys;
}

const std::set<std::string> kLaneNames = {"nvme_read", "nvme_write", "h2d", "d2h",
                                          "compute",   "comm",       "cpu"};

StepMetrics SomeMetrics() {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.loss = 5.4375001;
  metrics.learning_rate = 1e-3;
  metrics.grad_norm = 0.75;
  metrics.tokens = 1024;
  metrics.step_seconds = 0.5;
  metrics.vram_peak_bytes = 11;
  metrics.ram_peak_bytes = 12;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    metrics.lanes[lane].bytes = 100 + static_cast<uint64_t>(lane);
    metrics.stall_seconds[lane] = 0.25 * lane;
  }
  return metrics;
}

TEST(StepMetrics, ALineHasExactlyTheseKeysAndTheirFigures) {
  const std::string line = ToJsonLine(SomeMetrics());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json parsed = json::parse(line);
  const std::set<std::string> expected = {"step",
                                          "loss",
                                          "learning_rate",
                                          "grad_norm",
                                          "update_mode",
                                          "tokens",
                                          "step_seconds",
                                          "tokens_per_second",
                                          "vram_peak_bytes",
                                          "ram_peak_bytes",
                                          "nvme_read_bytes",
                                          "nvme_write_bytes",
                                          "h2d_bytes",
                                          "d2h_bytes",
                                          "stall_seconds"};
  EXPECT_EQ(Keys(parsed), expected);
  EXPECT_EQ(Keys(parsed["stall_seconds"]), kLaneNames);
  EXPECT_EQ(parsed["step"], 3);
  EXPECT_EQ(parsed["update_mode"], "exact");
  EXPECT_EQ(parsed["tokens_per_second"], 2048.0);
  EXPECT_EQ(parsed["vram_peak_bytes"], 11);
  EXPECT_EQ(parsed["ram_peak_bytes"], 12);
  EXPECT_EQ(parsed["nvme_read_bytes"], 100);
  EXPECT_EQ(parsed["nvme_write_bytes"], 101);
  EXPECT_EQ(parsed["h2d_bytes"], 102);
  EXPECT_EQ(parsed["d2h_bytes"], 103);
  EXPECT_EQ(parsed["stall_seconds"]["cpu"], 1.5);
}

TEST(StepMetrics, AnEvaluationLossIsThereWhenThereWasOne) {
  StepMetrics metrics = SomeMetrics();
  metrics.eval_loss = 2.5;
  EXPECT_EQ(json::parse(ToJsonLine(metrics))["eval_loss"], 2.5);
}

// Runs are compared bit for bit through this file.
TEST(StepMetrics, DoublesComeBackBitForBit) {
  uint64_t state = 12345;
  StepMetrics metrics = SomeMetrics();
  int finite = 0;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(&metrics.loss, &state, sizeof(double));
    if (!std::isfinite(metrics.loss)) continue;
    ++finite;
    const double back = json::parse(ToJsonLine(metrics))["loss"].get<double>();
    ASSERT_EQ(std::memcmp(&back, &metrics.loss, sizeof(double)), 0) << metrics.loss;
  }
  EXPECT_GT(finite, 19000);
}

TEST(StepMetrics, ALossThatIsNoNumberIsNull) {
  StepMetrics metrics = SomeMetrics();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(json::parse(ToJsonLine(metrics))["loss"].is_null());
  metrics.loss = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(json::parse(ToJsonLine(metrics))["loss"].is_null());
}

TEST(MetricsWriter, ReplacesAnOlderFileAtTheFirstLineOnly) {
  const TempFolder folder;
  const std::string path = folder.Write("metrics.jsonl", "old\n");
  MetricsWriter writer(path);
  EXPECT_EQ(ReadWholeFile(path), "old\n");
  StepMetrics metrics = SomeMetrics();
  for (metrics.step = 1; metrics.step <= 3; ++metrics.step) {
    ASSERT_TRUE(writer.Append(metrics).ok());
    // Each line is in the file when Append returns: a reader that follows it sees whole lines.
    std::istringstream lines(ReadWholeFile(path));
    std::string line;
    uint64_t count = 0;
    while (std::getline(lines, line)) EXPECT_EQ(json::parse(line)["step"], ++count);
    EXPECT_EQ(count, metrics.step);
  }
}

TEST(MetricsWriter, AFileThatCannotBeWrittenIsNamed) {
  const TempFolder folder;
  MetricsWriter missing(folder.path() + "/nowhere/metrics.jsonl");
  Status status = missing.Append(SomeMetrics());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("nowhere/metrics.jsonl"), std::string::npos);
  MetricsWriter full("/dev/full");
  status = full.Append(SomeMetrics());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error_number(), ENOSPC);
}

RunSummary SomeSummary() {
  RunSummary summary;
  summary.model = "configs/tiny";
  summary.device = "cpu";
  summary.precision = "bf16";
  summary.parameters = 1'500'000;
  summary.tokens_per_step = 4096;
  summary.steps = 20;
  summary.loss_first = 5.5;
  summary.loss_last = 3.25;
  summary.step_seconds_median = 0.5;
  summary.run_seconds = 10.5;
  for (int tier = 0; tier < kTierCount; ++tier) {
    const uint64_t base = 1000 * (1 + static_cast<uint64_t>(tier));
    summary.tiers[tier] = {base, base + 1, base + 2};
  }
  summary.placement[static_cast<int>(Tier::kNvme)][static_cast<int>(ShardKind::kMoment1)] = 64;
  summary.bound_by = "nvme_read";
  summary.io_mode = "posix";
  summary.io_mode_reason = "io_uring is forbidden";
  summary.io_mode_remedy = "sysctl kernel.io_uring_disabled=0";
  summary.lanes[static_cast<int>(Lane::kNvmeRead)] = {6000, 12, 2.0};
  summary.stall_seconds[static_cast<int>(Lane::kNvmeRead)] = 1.25;
  summary.threads = 2;
  summary.simd_level = "avx2";
  return summary;
}

TEST(RunSummary, HoldsEveryKeyWithItsFigure) {
  const json parsed = json::parse(ToJson(SomeSummary()));
  const std::set<std::string> expected = {"marea_version",
                                          "model",
                                          "device",
                                          "precision",
                                          "parameters",
                                          "world_size",
                                          "zero_stage",
                                          "tokens_per_step",
                                          "steps",
                                          "interrupted",
                                          "loss_first",
                                          "loss_last",
                                          "step_seconds_median",
                                          "tokens_per_second",
                                          "run_seconds",
                                          "budgets",
                                          "predicted_peaks",
                                          "peaks",
                                          "placement",
                                          "predicted_step_seconds",
                                          "bound_by",
                                          "io_mode",
                                          "io_mode_reason",
                                          "io_mode_remedy",
                                          "lanes",
                                          "stall_seconds",
                                          "wave_size",
                                          "micro_count",
                                          "chunk_elements",
                                          "threads",
                                          "simd_level"};
  EXPECT_EQ(Keys(parsed), expected);
  EXPECT_EQ(parsed["marea_version"], Version());
  EXPECT_EQ(parsed["budgets"]["vram_bytes"], 1000);
  EXPECT_EQ(parsed["predicted_peaks"]["ram_bytes"], 2001);
  EXPECT_EQ(parsed["peaks"]["nvme_bytes"], 3002);
  EXPECT_EQ(parsed["placement"]["nvme"], json({{"moment1", 64}}));
  EXPECT_EQ(parsed["placement"]["vram"], json::object());
  EXPECT_TRUE(parsed["predicted_step_seconds"].is_null());
  EXPECT_EQ(parsed["tokens_per_second"], 8192.0);
  EXPECT_EQ(Keys(parsed["lanes"]), kLaneNames);
  EXPECT_EQ(parsed["lanes"]["nvme_read"]["bytes_per_busy_second"], 3000.0);
  EXPECT_EQ(parsed["lanes"]["comm"]["bytes_per_busy_second"], 0.0);
  EXPECT_EQ(parsed["stall_seconds"]["nvme_read"], 1.25);
}

TEST(RunSummary, APredictionAndAnEvaluationAppearOnceTheyExist) {
  RunSummary summary = SomeSummary();
  summary.predicted_step_seconds = 0.75;
  summary.eval_loss_last = 3.5;
  const json parsed = json::parse(ToJson(summary));
  EXPECT_EQ(parsed["predicted_step_seconds"], 0.75);
  EXPECT_EQ(parsed["eval_loss_last"], 3.5);
}

TEST(RunSummary, APathThatIsNoUtf8DoesNotBreakIt) {
  RunSummary summary = SomeSummary();
  summary.model = "model\xff";
  EXPECT_NO_THROW({
    const json parsed = json::parse(ToJson(summary));
    EXPECT_EQ(parsed["model"], "model\xEF\xBF\xBD");
  });
}

TEST(RunSummary, TheTableSaysWhereMemoryAndTimeWent) {
  const std::string table = ToTable(SomeSummary());
  for (const char* part : {"budget", "predicted", "peak", "vram", "ram", "nvme", "nvme_read",
                           "5.5000 -> 3.2500", "8192 tokens/s", "1.25 s", "bound by nvme_read",
                           "posix (io_uring is forbidden)", "sysctl kernel.io_uring_disabled=0"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
  EXPECT_EQ(table.find("d2h"), std::string::npos) << "a lane that did nothing has no row";
  EXPECT_EQ(table.back(), '\n');
}

}  // namespace
}  // namespace marea
