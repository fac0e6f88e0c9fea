// Time that passes only when a test says so.
//
// A queue of events ordered by time, then by order of scheduling: the same schedule gives the same
// run. Single-threaded. Events may schedule further events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "io/check.h"

namespace marea {

class VirtualClock {
 public:
  using Nanoseconds = uint64_t;
  using Event = std::function<void()>;

  Nanoseconds now() const { return now_; }
  size_t pending() const { return events_.size(); }
  std::optional<Nanoseconds> NextEventTime() const {
    if (events_.empty()) return std::nullopt;
    return events_.begin()->first.first;
  }

  // REQUIRES: at >= now().
  void Schedule(Nanoseconds at, Event event) {
    MAREA_CHECK(at >= now_, "an event lies in the past");
    events_.emplace(std::make_pair(at, sequence_++), std::move(event));
  }
  void ScheduleAfter(Nanoseconds delay, Event event) { Schedule(now_ + delay, std::move(event)); }

  // Moves to the next event and runs it; false if there is none.
  bool RunNext() {
    if (events_.empty()) return false;
    auto node = events_.extract(events_.begin());
    now_ = node.key().first;
    node.mapped()();
    return true;
  }

  // Runs every event up to and including `time`, then stands at `time`. REQUIRES: time >= now().
  void AdvanceTo(Nanoseconds time) {
    MAREA_CHECK(time >= now_, "a clock runs backwards");
    while (!events_.empty() && events_.begin()->first.first <= time) RunNext();
    now_ = time;
  }

 private:
  Nanoseconds now_ = 0;
  uint64_t sequence_ = 0;
  std::map<std::pair<Nanoseconds, uint64_t>, Event> events_;
};

}  // namespace marea
