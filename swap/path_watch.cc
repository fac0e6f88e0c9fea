#include "swap/path_watch.h"

#include <fmt/format.h>

#include <utility>

#include "io/check.h"
#include "io/units.h"

namespace marea {
namespace {

Lane LaneOf(IoDirection direction) {
  return direction == IoDirection::kRead ? Lane::kNvmeRead : Lane::kNvmeWrite;
}

}  // namespace

PathWatch::PathWatch(std::vector<std::string> paths, PathWatchOptions options)
    : paths_(std::move(paths)), options_(options), ways_(paths_.size()) {}

void PathWatch::Begin(PathSample sample) {
  MAREA_CHECK(sample.flows.size() == paths_.size(), "a sample knows every path");
  last_ = std::move(sample);
}

std::vector<std::string> PathWatch::OnStep(PathSample sample) {
  MAREA_CHECK(sample.flows.size() == paths_.size() && last_.flows.size() == paths_.size(),
              "a sample knows every path, and there was one before");
  std::vector<std::string> sentences;
  for (size_t path = 0; path < paths_.size(); ++path) {
    for (const IoDirection direction : {IoDirection::kRead, IoDirection::kWrite}) {
      Way& way = ways_[path][static_cast<size_t>(direction)];
      Add(sample, path, direction, way);
      if (way.steps < options_.window_steps ||
          way.flow.busy_seconds < options_.window_busy_seconds) {
        continue;
      }
      std::string sentence = Judge(paths_[path], direction, way);
      if (!sentence.empty()) sentences.push_back(std::move(sentence));
      way.steps = 0;
      way.flow = {};
      way.stalled_seconds = way.seconds = 0;
    }
  }
  last_ = std::move(sample);
  return sentences;
}

void PathWatch::Add(const PathSample& sample, size_t path, IoDirection direction, Way& way) const {
  const PathFlow& now = sample.flows[path][static_cast<size_t>(direction)];
  const PathFlow& before = last_.flows[path][static_cast<size_t>(direction)];
  const auto lane = static_cast<size_t>(LaneOf(direction));
  ++way.steps;
  way.flow.bytes += now.bytes - before.bytes;
  way.flow.busy_seconds += now.busy_seconds - before.busy_seconds;
  way.stalled_seconds += sample.stalls[lane] - last_.stalls[lane];
  way.seconds += sample.seconds - last_.seconds;
}

std::string PathWatch::Judge(const std::string& path, IoDirection direction, Way& way) const {
  const double rate = static_cast<double>(way.flow.bytes) / way.flow.busy_seconds;
  if (way.start_rate == 0) {
    way.start_rate = rate;
    return {};
  }
  // Slow, and slower than was told by as much as makes a path slow.
  const bool slower =
      rate < options_.slow_share * (way.told_rate > 0 ? way.told_rate : way.start_rate);
  const bool recovered = way.told_rate > 0 && rate > options_.recovered_share * way.start_rate;
  way.slow_windows = slower ? way.slow_windows + 1 : 0;
  const bool tell = recovered || way.slow_windows >= options_.slow_windows;
  if (!tell || way.said == options_.said_max) return {};
  way.slow_windows = 0;
  way.told_rate = slower ? rate : 0;
  const char* const verb = direction == IoDirection::kRead ? "reads" : "writes";
  std::string sentence =
      fmt::format("NVMe path {} {} {}{}, {} at the start", path, verb, FormatRate(rate),
                  slower ? " now" : " again", FormatRate(way.start_rate));
  if (slower) {
    const bool waits = way.stalled_seconds > options_.wait_share * way.seconds;
    sentence += waits ? ": the run waits for it" : ": the run does not wait for it so far";
  }
  if (++way.said == options_.said_max) sentence += " (said for the last time)";
  return sentence;
}

}  // namespace marea
