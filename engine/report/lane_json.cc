#include "engine/report/lane_json.h"

namespace marea {

double Rate(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0.0;
}

nlohmann::ordered_json StallJson(const StallSeconds& stall_seconds) {
  nlohmann::ordered_json json;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    json[LaneName(static_cast<Lane>(lane))] = stall_seconds[lane];
  }
  return json;
}

nlohmann::ordered_json LanesJson(const SwapSnapshot& lanes) {
  nlohmann::ordered_json json;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const LaneStats& stats = lanes[lane];
    json[LaneName(static_cast<Lane>(lane))] = {
        {"bytes", stats.bytes},
        {"op_count", stats.op_count},
        {"busy_seconds", stats.busy_seconds},
        {"bytes_per_busy_second", Rate(static_cast<double>(stats.bytes), stats.busy_seconds)}};
  }
  return json;
}

std::string DumpJson(const nlohmann::ordered_json& value, JsonStyle style) {
  return value.dump(style == JsonStyle::kPretty ? 2 : -1, ' ', false,
                    nlohmann::json::error_handler_t::replace);
}

}  // namespace marea
