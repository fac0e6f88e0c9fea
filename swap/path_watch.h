// Names an NVMe path that has become slower than it was when the run began.
//
// Pure arithmetic on what PathMeter counted; no clock, no I/O. Owner and thread rule: one thread.
//
// Note [what slow means]: a path is compared with itself, each way, in busy time: steps repeat the
// same transfers, so over whole steps its rate says what the drive does, whatever the engine does
// meanwhile. Rates are taken over windows: steps, until the way was busy long enough for a hiccup
// not to count. The first window is what the path did at the start. Two windows in a row at less
// than half of that are told (the first may hold the change itself, and its rate be neither); so is
// a further halving, and the return. Each way of a path says no more than `said_max` sentences in a
// run, and the last one says that it is.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "swap/executor.h"
#include "swap/path_meter.h"

namespace marea {

struct PathWatchOptions {
  double window_busy_seconds = 5.0;  // a window is at least so long in busy time,
  uint64_t window_steps = 2;         // and in steps
  uint32_t slow_windows = 2;         // so many in a row are slow before it is told
  double slow_share = 0.5;           // below it a path is slow,
  double recovered_share = 0.8;      // above it no longer: of the rate at the start
  // The run waits for a lane if the compute lane lost more than this share of the window to it.
  double wait_share = 0.05;
  uint32_t said_max = 6;
};

// Totals since the run began.
struct PathSample {
  std::vector<PathFlows> flows;  // by path
  StallSeconds stalls{};         // of the executor
  double seconds = 0;
};

class PathWatch {
 public:
  explicit PathWatch(std::vector<std::string> paths, PathWatchOptions options = {});

  // Steps are counted from here: at the start, and after what is no step (an evaluation).
  void Begin(PathSample sample);

  // A step has ended. What is to be told: whole sentences, mostly none.
  // REQUIRES: Begin was called, and as many flows as paths.
  std::vector<std::string> OnStep(PathSample sample);

 private:
  // A window, and what is known of one way of one path.
  struct Way {
    uint64_t steps = 0;
    PathFlow flow;
    double stalled_seconds = 0;  // of the compute lane, by this way's lane
    double seconds = 0;
    double start_rate = 0;      // 0: no window yet
    uint32_t slow_windows = 0;  // in a row, up to the last one
    double told_rate = 0;       // what was said of it last; 0: nothing, or that it is back
    uint32_t said = 0;
  };
  void Add(const PathSample& sample, size_t path, IoDirection direction, Way& way) const;
  std::string Judge(const std::string& path, IoDirection direction, Way& way) const;

  const std::vector<std::string> paths_;
  const PathWatchOptions options_;
  std::vector<std::array<Way, 2>> ways_;  // by path, by IoDirection
  PathSample last_;
};

}  // namespace marea
