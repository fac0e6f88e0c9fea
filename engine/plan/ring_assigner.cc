#include "engine/plan/ring_assigner.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/units.h"

namespace marea {
namespace {

struct Live {
  uint64_t begin, end;  // within the ring
  uint32_t last;        // op index of the last use
};

// The values of one ring that are in use at this point of the program.
class RingState {
 public:
  explicit RingState(uint64_t bytes) : bytes_(bytes) {}

  // The first offset at or after the head where `bytes` fit, wrapping once; UINT64_MAX if none.
  // Where a value there would leave no room for another of its size, and one at the ring's start
  // would, it goes to the start: values of different sizes would else cut the ring into pieces.
  uint64_t Find(uint64_t bytes, uint32_t now) {
    std::erase_if(live_, [&](const Live& value) { return value.last < now; });
    const uint64_t ahead = FindFrom(head_, bytes);
    const uint64_t start = FindFrom(0, bytes);
    if (ahead == UINT64_MAX) return start;
    return LeavesRoom(ahead, bytes) || !LeavesRoom(start, bytes) ? ahead : start;
  }

  void Take(const Live& value) {
    const auto after =
        std::upper_bound(live_.begin(), live_.end(), value,
                         [](const Live& a, const Live& b) { return a.begin < b.begin; });
    live_.insert(after, value);
    head_ = value.end;
  }

  uint64_t LiveBytes() const {
    uint64_t sum = 0;
    for (const Live& value : live_) sum += value.end - value.begin;
    return sum;
  }

 private:
  uint64_t FindFrom(uint64_t from, uint64_t bytes) const {
    uint64_t at = from;
    for (const Live& value : live_) {
      if (value.end <= at) continue;
      if (value.begin >= at + bytes) break;
      at = value.end;
    }
    return at + bytes <= bytes_ ? at : UINT64_MAX;
  }

  // Would as many bytes more find place, with a value at `offset`?
  bool LeavesRoom(uint64_t offset, uint64_t bytes) const {
    RingState with = *this;
    with.Take({offset, offset + bytes, kNone});
    return with.FindFrom(0, bytes) != UINT64_MAX;
  }

  uint64_t bytes_;
  uint64_t head_ = 0;
  std::vector<Live> live_;  // by begin
};

std::vector<uint32_t> LastUses(const StepPlan& plan) {
  std::vector<uint32_t> last_use(plan.buffers.size(), 0);
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    for (const Access& access : plan.ops[i].accesses) last_use[access.buffer] = i;
  }
  return last_use;
}

class Assigner {
 public:
  Assigner(StepPlan& plan, const std::vector<std::vector<uint32_t>>& batches)
      : plan_(plan),
        batches_(batches),
        batch_of_(plan.buffers.size(), kNone),
        last_use_(LastUses(plan)) {
    for (uint32_t batch = 0; batch < batches.size(); ++batch) {
      for (const uint32_t value : batches[batch]) batch_of_[value] = batch;
    }
    for (const Ring& ring : plan.rings) rings_.emplace_back(ring.bytes);
  }

  Status Run() {
    for (uint32_t i = 0; i < plan_.ops.size(); ++i) {
      for (const Access& access : plan_.ops[i].accesses) {
        const Buffer& buffer = plan_.buffers[access.buffer];
        if (buffer.ring == kHomeRing || buffer.offset != UINT64_MAX) continue;
        MAREA_RETURN_IF_ERROR(Allocate(batches_[batch_of_[access.buffer]], buffer.ring, i));
      }
    }
    return Status::Ok();
  }

 private:
  Status Allocate(const std::vector<uint32_t>& batch, uint32_t ring, uint32_t now) {
    uint64_t bytes = 0;
    for (const uint32_t value : batch) bytes += RoundUp(plan_.buffers[value].bytes, kPageBytes);
    uint64_t offset = rings_[ring].Find(bytes, now);
    if (offset == UINT64_MAX) {
      return Status::DoesNotFit(
          fmt::format("the {} ring of {} is full at [{}]: {} are in use and {} more are needed",
                      plan_.rings[ring].name, FormatBytes(plan_.rings[ring].bytes),
                      Describe(plan_, plan_.ops[now]), FormatBytes(rings_[ring].LiveBytes()),
                      FormatBytes(bytes)));
    }
    for (const uint32_t value : batch) {
      Buffer& buffer = plan_.buffers[value];
      const uint64_t end = offset + RoundUp(buffer.bytes, kPageBytes);
      buffer.offset = plan_.rings[ring].offset + offset;
      rings_[ring].Take({offset, end, last_use_[value]});
      offset = end;
    }
    return Status::Ok();
  }

  StepPlan& plan_;
  const std::vector<std::vector<uint32_t>>& batches_;
  std::vector<uint32_t> batch_of_;
  const std::vector<uint32_t> last_use_;  // op index, by buffer
  std::vector<RingState> rings_;
};

}  // namespace

Status AssignRings(StepPlan& plan, const std::vector<std::vector<uint32_t>>& batches) {
  return Assigner(plan, batches).Run();
}

}  // namespace marea
