#include "src/bench/endurance.h"

#include <fmt/format.h>

#include "io/units.h"

namespace marea {
namespace {

constexpr double kSecondsPerDay = 24 * 60 * 60;
constexpr double kDaysPerYear = 365.25;
constexpr double kTb = 1e12;

std::string DaysText(std::optional<double> days) {
  if (!days.has_value()) return "never used up";
  if (*days < 2) return fmt::format("used up in {:.1f} hours", 24 * *days);
  if (*days < kDaysPerYear) return fmt::format("used up in {:.3g} days", *days);
  return fmt::format("used up in {:.1f} years", *days / kDaysPerYear);
}

}  // namespace

std::optional<double> EnduranceEstimate::days() const {
  if (bytes_per_day <= 0) return std::nullopt;
  return static_cast<double>(rating_bytes) / bytes_per_day;
}

std::vector<EnduranceEstimate> EnduranceOfReplay(std::span<const std::string> paths,
                                                 std::span<const uint64_t> step_write_bytes,
                                                 double steps_per_second, uint64_t rating_bytes) {
  std::vector<EnduranceEstimate> estimates;
  for (size_t i = 0; i < paths.size(); ++i) {
    const double bytes = static_cast<double>(step_write_bytes[i]);
    estimates.push_back({.path = paths[i],
                         .rating_bytes = rating_bytes,
                         .step_write_bytes = step_write_bytes[i],
                         .bytes_per_day = bytes * steps_per_second * kSecondsPerDay});
  }
  return estimates;
}

EnduranceEstimate EnduranceOfWriting(const std::string& path, double write_bytes_per_second,
                                     uint64_t rating_bytes) {
  return {.path = path,
          .rating_bytes = rating_bytes,
          .step_write_bytes = std::nullopt,
          .bytes_per_day = write_bytes_per_second * kSecondsPerDay};
}

nlohmann::ordered_json EnduranceJson(std::span<const EnduranceEstimate> estimates) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const EnduranceEstimate& each : estimates) {
    nlohmann::ordered_json object;
    object["path"] = each.path;
    object["basis"] = each.step_write_bytes.has_value() ? "replay" : "write";
    object["rating_bytes"] = each.rating_bytes;
    object["step_write_bytes"] = nullptr;
    if (each.step_write_bytes.has_value()) object["step_write_bytes"] = *each.step_write_bytes;
    object["bytes_per_day"] = each.bytes_per_day;
    object["days"] = nullptr;
    if (each.days().has_value()) object["days"] = *each.days();
    json.push_back(std::move(object));
  }
  return json;
}

std::string EnduranceText(std::span<const EnduranceEstimate> estimates) {
  std::string text;
  for (const EnduranceEstimate& each : estimates) {
    const std::string step = each.step_write_bytes.has_value()
                                 ? fmt::format("{} a step, ", FormatBytes(*each.step_write_bytes))
                                 : "";
    text += fmt::format("{}: {}{:.3g} TB written a day: {:.4g} TB {}\n", each.path, step,
                        each.bytes_per_day / kTb, static_cast<double>(each.rating_bytes) / kTb,
                        DaysText(each.days()));
  }
  if (estimates.empty()) return text;
  text += estimates.front().step_write_bytes.has_value()
              ? "  at the replay's rate, in which all else of a step takes no time: a run writes "
                "no faster\n"
              : "  the worst case, writing day and night at the measured rate; --replay PLAN tells "
                "a step's share\n";
  return text;
}

}  // namespace marea
