#include "engine/report/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/atomic_file.h"
#include "engine/report/lane_json.h"
#include "engine/report/version.h"

namespace marea {
namespace {

using nlohmann::ordered_json;

constexpr int kProcessId = 1;
constexpr uint32_t kRowsPerLane = 1000;  // row ids of a lane: lane * this + row + 1

// An event that names or orders a row.
std::string MetadataJson(const char* name, uint32_t row_id, ordered_json args) {
  return DumpJson({{"name", name},
                   {"ph", "M"},
                   {"pid", kProcessId},
                   {"tid", row_id},
                   {"args", std::move(args)}},
                  JsonStyle::kOneLine);
}

// "read moment1" for a transfer, "forward" for the rest.
std::string EventName(const StepPlan& plan, const Op& op) {
  if (TransferBytes(op) == 0) return OpKindName(op.kind);
  const ShardKind kind = plan.buffers[op.accesses.front().buffer].content.kind;
  return fmt::format("{} {}", OpKindName(op.kind), ShardKindName(kind));
}

}  // namespace

TraceRecorder::TraceRecorder(const StepPlan& plan, const TraceOptions& options)
    : plan_(plan), first_turn_(options.first_turn), turn_count_(options.turn_count) {
  const uint64_t ops = std::max<uint64_t>(plan.ops.size(), 1);
  turn_count_ = std::min(turn_count_, options.event_count_max / ops);
  events_.resize(turn_count_ * plan.ops.size());
}

TraceRecorder::Event* TraceRecorder::Find(uint32_t op_index, uint64_t turn) {
  if (turn < first_turn_ || turn - first_turn_ >= turn_count_) return nullptr;
  return &events_[(turn - first_turn_) * plan_.ops.size() + op_index];
}

void TraceRecorder::OnBegin(uint32_t op_index, uint64_t turn, double seconds) {
  Event* event = Find(op_index, turn);
  if (event != nullptr) event->begin = seconds;
}

void TraceRecorder::OnComplete(uint32_t op_index, uint64_t turn, double seconds) {
  Event* event = Find(op_index, turn);
  if (event != nullptr) event->end = seconds;
}

// Ops of a lane begin in order, so its spans come sorted by begin; each goes to the first row that
// is free by then. The number of rows is the most that were in flight at once.
std::vector<TraceRecorder::Row> TraceRecorder::RowsOf(Lane lane) const {
  std::vector<Row> rows;
  const std::vector<uint32_t>& ops = plan_.lane_ops[static_cast<int>(lane)];
  for (uint64_t turn = 0; turn < turn_count_; ++turn) {
    for (const uint32_t op_index : ops) {
      const Event& event = events_[turn * plan_.ops.size() + op_index];
      if (event.begin < 0 || event.end < 0) continue;
      auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) {
        return candidate.back().event.end <= event.begin;
      });
      if (row == rows.end()) row = rows.emplace(rows.end());
      row->push_back({op_index, first_turn_ + turn, event});
    }
  }
  return rows;
}

std::string TraceRecorder::EventJson(const Span& span, uint32_t row_id,
                                     double origin_seconds) const {
  const Op& op = plan_.ops[span.op_index];
  ordered_json args = {{"turn", span.turn}, {"op", span.op_index}};
  if (op.block != kNone) args["block"] = op.block;
  if (op.group != kNone) {
    args["group"] = op.group;
    args["chunk"] = op.chunk;
  }
  if (op.micro != kNone) args["micro"] = op.micro;
  if (TransferBytes(op) > 0) args["bytes"] = TransferBytes(op);
  return DumpJson({{"name", EventName(plan_, op)},
                   {"cat", OpKindName(op.kind)},
                   {"ph", "X"},
                   {"ts", (span.event.begin - origin_seconds) * 1e6},
                   {"dur", (span.event.end - span.event.begin) * 1e6},
                   {"pid", kProcessId},
                   {"tid", row_id},
                   {"args", std::move(args)}},
                  JsonStyle::kOneLine);
}

std::string TraceRecorder::ToJson() const {
  double origin_seconds = std::numeric_limits<double>::infinity();
  for (const Event& event : events_) {
    if (event.begin >= 0) origin_seconds = std::min(origin_seconds, event.begin);
  }
  std::string text = "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"marea_version\": \"";
  text += fmt::format("{}\"}}, \"traceEvents\": [\n", Version());
  text += MetadataJson("process_name", 0, {{"name", "marea"}});
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const std::vector<Row> rows = RowsOf(static_cast<Lane>(lane));
    for (uint32_t row = 0; row < rows.size(); ++row) {
      const uint32_t row_id = static_cast<uint32_t>(lane) * kRowsPerLane + row + 1;
      const std::string name = LaneName(static_cast<Lane>(lane));
      text +=
          ",\n" + MetadataJson("thread_name", row_id,
                               {{"name", row == 0 ? name : fmt::format("{} {}", name, row + 1)}});
      text += ",\n" + MetadataJson("thread_sort_index", row_id, {{"sort_index", row_id}});
      for (const Span& span : rows[row]) text += ",\n" + EventJson(span, row_id, origin_seconds);
    }
  }
  return text + "\n]}\n";
}

Status TraceRecorder::WriteTo(const std::string& path) const {
  const std::string text = ToJson();
  return WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

}  // namespace marea
