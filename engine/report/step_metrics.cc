#include "engine/report/step_metrics.h"

#include <nlohmann/json.hpp>

#include "engine/report/lane_json.h"

namespace marea {

std::string ToJsonLine(const StepMetrics& metrics) {
  const auto lane_bytes = [&](Lane lane) { return metrics.lanes[static_cast<int>(lane)].bytes; };
  nlohmann::ordered_json line;
  line["step"] = metrics.step;
  line["loss"] = metrics.loss;
  line["learning_rate"] = metrics.learning_rate;
  line["grad_norm"] = metrics.grad_norm;
  line["update_mode"] = metrics.update_mode;
  line["tokens"] = metrics.tokens;
  line["step_seconds"] = metrics.step_seconds;
  line["tokens_per_second"] = Rate(static_cast<double>(metrics.tokens), metrics.step_seconds);
  line["vram_peak_bytes"] = metrics.vram_peak_bytes;
  line["ram_peak_bytes"] = metrics.ram_peak_bytes;
  line["nvme_read_bytes"] = lane_bytes(Lane::kNvmeRead);
  line["nvme_write_bytes"] = lane_bytes(Lane::kNvmeWrite);
  line["h2d_bytes"] = lane_bytes(Lane::kH2d);
  line["d2h_bytes"] = lane_bytes(Lane::kD2h);
  line["stall_seconds"] = StallJson(metrics.stall_seconds);
  if (metrics.eval_loss) line["eval_loss"] = *metrics.eval_loss;
  return DumpJson(line, JsonStyle::kOneLine);
}

}  // namespace marea
