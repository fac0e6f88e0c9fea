#include "swap/step_plan.h"

#include <fmt/format.h>

namespace marea {

const char* LaneName(Lane lane) {
  static constexpr const char* kNames[kLaneCount] = {"nvme_read", "nvme_write", "h2d", "d2h",
                                                     "compute",   "comm",       "cpu"};
  return kNames[static_cast<int>(lane)];
}

const char* OpKindName(OpKind kind) {
  static constexpr const char* kNames[kOpKindCount] = {
      "read",      "write",    "copy_in",          "copy_out", "gather", "reduce_scatter",
      "forward",   "backward", "forward_backward", "reduce",   "clip",   "update",
      "head_eval", "commit"};
  return kNames[static_cast<int>(kind)];
}

const char* SpaceName(Space space) {
  static constexpr const char* kNames[kSpaceCount] = {"vram", "ram", "file", "scalar"};
  return kNames[static_cast<int>(space)];
}

bool Active(const Op& op, const StepMask& mask) {
  if (op.micro != kNone && op.micro >= mask.micro_count) return false;
  switch (op.when) {
    case When::kAlways:
      return true;
    case When::kIfUpdate:
      return mask.update;
    case When::kIfForward:
      return mask.train || mask.eval;
    case When::kIfTrain:
      return mask.train;
    case When::kIfEval:
      return mask.eval;
    case When::kIfNoUpdate:
      return (mask.train || mask.eval) && !mask.update;
  }
  return false;
}

uint64_t TransferBytes(const Op& op) {
  switch (op.kind) {
    case OpKind::kRead:
    case OpKind::kWrite:
    case OpKind::kCopyIn:
    case OpKind::kCopyOut:
      return op.accesses.empty() ? 0 : op.accesses.front().bytes;
    default:
      return 0;
  }
}

std::string Describe(const StepPlan& plan, const Op& op) {
  std::string text =
      fmt::format("{:<10} #{:<5} {:<16}", LaneName(op.lane), op.position, OpKindName(op.kind));
  if (op.block != kNone) text += fmt::format(" block {}", op.block);
  if (op.group != kNone) text += fmt::format(" group {} chunk {}", op.group, op.chunk);
  if (op.micro != kNone) text += fmt::format(" micro {}", op.micro);
  for (const Wait& wait : op.waits) {
    text += fmt::format(" | after {}#{}{}", LaneName(wait.lane), wait.position,
                        wait.steps_back ? " of the turn before" : "");
  }
  for (const Access& access : op.accesses) {
    const Buffer& buffer = plan.buffers[access.buffer];
    text += fmt::format(" | {}{} {}[{}+{}] {}", Reads(access.mode) ? "r" : "",
                        Writes(access.mode) ? "w" : "", SpaceName(buffer.space),
                        buffer.offset + access.offset, access.bytes,
                        ShardKindName(buffer.content.kind));
  }
  return text;
}

}  // namespace marea
