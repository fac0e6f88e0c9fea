// Records when each op of the first turns ran, and writes it as a Chrome trace, which Perfetto and
// chrome://tracing open: one row a lane, more where a lane has several ops in flight.
//
// Memory is bounded by the options and allocated once. Owner: the training run. Thread rule: the
// executor calls the observer under its lock; everything else only while no turn is running
// (Executor::Drain has returned).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/status.h"
#include "swap/executor.h"
#include "swap/step_plan.h"

namespace marea {

struct TraceOptions {
  uint64_t first_turn = 0;
  uint64_t turn_count = 6;
  uint64_t event_count_max = uint64_t{1} << 20;  // fewer turns are recorded if the plan is so long
};

class TraceRecorder : public ExecutorObserver {
 public:
  // `plan` outlives the recorder.
  explicit TraceRecorder(const StepPlan& plan, const TraceOptions& options = {});

  void OnBegin(uint32_t op_index, uint64_t turn, double seconds) override;
  void OnComplete(uint32_t op_index, uint64_t turn, double seconds) override;

  // Times are in microseconds since the first recorded op began. Ops that were skipped, or not
  // complete, are left out.
  std::string ToJson() const;
  // Io names the path; what was there before stays on failure. Blocks.
  Status WriteTo(const std::string& path) const;

 private:
  struct Event {
    double begin = -1;  // < 0: did not begin
    double end = -1;    // < 0: not complete
  };
  struct Span {
    uint32_t op_index;
    uint64_t turn;
    Event event;
  };
  // Spans of one lane that do not overlap: a row of the picture.
  using Row = std::vector<Span>;

  Event* Find(uint32_t op_index, uint64_t turn);
  std::vector<Row> RowsOf(Lane lane) const;
  std::string EventJson(const Span& span, uint32_t row_id, double origin_seconds) const;

  const StepPlan& plan_;
  uint64_t first_turn_;
  uint64_t turn_count_;
  std::vector<Event> events_;  // by turn, then by op
};

}  // namespace marea
