#include "swap/swap_stats.h"

#include <utility>

#include "io/check.h"

namespace marea {

SwapStats::SwapStats(const StepPlan& plan, ClockFunction clock)
    : plan_(plan), clock_(std::move(clock)) {}

void SwapStats::OnBegin(uint32_t op_index, uint64_t /*turn*/, double seconds) {
  Meter& meter = meters_[static_cast<size_t>(plan_.ops[op_index].lane)];
  MutexLock lock(meter.mutex);
  if (meter.in_flight++ == 0) meter.busy_since = seconds;
}

void SwapStats::OnComplete(uint32_t op_index, uint64_t /*turn*/, double seconds) {
  const Op& op = plan_.ops[op_index];
  Meter& meter = meters_[static_cast<size_t>(op.lane)];
  MutexLock lock(meter.mutex);
  MAREA_CHECK(meter.in_flight > 0, "an op finishes that did not start");
  meter.totals.bytes += TransferBytes(op);
  ++meter.totals.op_count;
  if (--meter.in_flight == 0) meter.totals.busy_seconds += seconds - meter.busy_since;
}

SwapSnapshot SwapStats::Snapshot() const {
  SwapSnapshot snapshot;
  for (size_t lane = 0; lane < meters_.size(); ++lane) {
    const Meter& meter = meters_[lane];
    MutexLock lock(meter.mutex);
    snapshot[lane] = meter.totals;
    if (meter.in_flight > 0) snapshot[lane].busy_seconds += clock_() - meter.busy_since;
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
