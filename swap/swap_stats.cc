#include "swap/swap_stats.h"

#include <chrono>

#include "io/check.h"

namespace marea {
namespace {

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

SwapStats::SwapStats(std::function<double()> now_seconds)
    : now_seconds_(now_seconds ? std::move(now_seconds) : SteadySeconds) {}

void SwapStats::OnStart(Lane lane) {
  Meter& meter = meters_[static_cast<size_t>(lane)];
  MutexLock lock(meter.mutex);
  if (meter.in_flight++ == 0) meter.busy_since = now_seconds_();
}

void SwapStats::OnFinish(Lane lane, uint64_t bytes) {
  Meter& meter = meters_[static_cast<size_t>(lane)];
  MutexLock lock(meter.mutex);
  MAREA_CHECK(meter.in_flight > 0, "an op finishes that did not start");
  meter.totals.bytes += bytes;
  ++meter.totals.op_count;
  if (--meter.in_flight == 0) meter.totals.busy_seconds += now_seconds_() - meter.busy_since;
}

SwapSnapshot SwapStats::Snapshot() const {
  SwapSnapshot snapshot;
  for (size_t lane = 0; lane < meters_.size(); ++lane) {
    const Meter& meter = meters_[lane];
    MutexLock lock(meter.mutex);
    snapshot[lane] = meter.totals;
    if (meter.in_flight > 0) snapshot[lane].busy_seconds += now_seconds_() - meter.busy_since;
  }
  return snapshot;
}

SwapSnapshot Difference(const SwapSnapshot& later, const SwapSnapshot& earlier) {
  SwapSnapshot difference;
  for (size_t lane = 0; lane < later.size(); ++lane) {
    difference[lane] = {.bytes = later[lane].bytes - earlier[lane].bytes,
                        .op_count = later[lane].op_count - earlier[lane].op_count,
                        .busy_seconds = later[lane].busy_seconds - earlier[lane].busy_seconds};
  }
  return difference;
}

}  // namespace marea
