#include "swap/path_meter.h"

#include <algorithm>

#include "io/check.h"

namespace marea {

void PathMeter::OnBegin(IoDirection direction) {
  const double now = clock_();
  MutexLock lock(mutex_);
  Way& way = ways_[static_cast<size_t>(direction)];
  if (way.in_flight++ == 0) way.busy_since = now;
}

void PathMeter::OnEnd(IoDirection direction, uint64_t bytes) {
  const double now = clock_();
  MutexLock lock(mutex_);
  Way& way = ways_[static_cast<size_t>(direction)];
  MAREA_CHECK(way.in_flight > 0, "a transfer ends that did not begin");
  way.totals.bytes += bytes;
  if (--way.in_flight == 0) way.totals.busy_seconds += now - way.busy_since;
}

PathFlows PathMeter::Snapshot() const {
  const double now = clock_();
  MutexLock lock(mutex_);
  PathFlows flows;
  for (size_t i = 0; i < flows.size(); ++i) {
    flows[i] = ways_[i].totals;
    // The drive's thread may have begun after `now` was read.
    if (ways_[i].in_flight > 0) flows[i].busy_seconds += std::max(0.0, now - ways_[i].busy_since);
  }
  return flows;
}

}  // namespace marea
