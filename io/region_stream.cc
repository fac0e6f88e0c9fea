#include "io/region_stream.h"

#include <algorithm>
#include <array>
#include <utility>

#include "io/check.h"
#include "io/units.h"

namespace marea {

double RegionStream::Moved::rate() const {
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

RegionStream::RegionStream(BlockDevice& device, std::span<std::byte> memory, uint64_t region_bytes,
                           uint64_t request_bytes, std::function<double()> clock)
    : device_(device), request_bytes_(request_bytes), clock_(std::move(clock)) {
  MAREA_CHECK(request_bytes > 0 && request_bytes % kPageBytes == 0, "requests are whole pages");
  const uint64_t count =
      std::min({memory.size() / request_bytes, region_bytes / request_bytes, device.capacity()});
  MAREA_CHECK(count > 0, "memory and region hold a request");
  for (uint64_t slot = 0; slot < count; ++slot) {
    slots_.push_back({.data = memory.data() + slot * request_bytes});
  }
  rounds_ = region_bytes / round_bytes();
  completions_.assign(count, IoCompletion{0, Status::Ok()});
}

Status RegionStream::Fill(const Enough& enough) {
  MAREA_ASSIGN_OR_RETURN(const Moved filled, Stream(IoDirection::kWrite, rounds_, enough));
  (void)filled;
  // Every slot writes its requests in order and has finished those that it started.
  uint64_t whole = rounds_;
  for (const Slot& slot : slots_) whole = std::min(whole, slot.started);
  rounds_ = whole;
  return Status::Ok();
}

Result<RegionStream::Moved> RegionStream::Run(IoDirection direction, const Enough& enough) {
  return Stream(direction, UINT64_MAX, enough);
}

Status RegionStream::Submit(IoDirection direction, size_t slot) {
  Slot& state = slots_[slot];
  const uint64_t round = state.started % rounds_;
  const std::array request = {IoRequest{.direction = direction,
                                        .file = 0,
                                        .offset = round * round_bytes() + slot * request_bytes_,
                                        .data = state.data,
                                        .bytes = request_bytes_,
                                        .tag = slot}};
  MAREA_RETURN_IF_ERROR(device_.Submit(request));
  ++state.started;
  return Status::Ok();
}

Result<RegionStream::Moved> RegionStream::Stream(IoDirection direction, uint64_t rounds_max,
                                                 const Enough& enough) {
  Moved moved;
  Status status = Status::Ok();
  const auto note = [&](Status other) {
    if (status.ok()) status = std::move(other);
  };
  const double start = clock_();
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    slots_[slot].started = 0;
    if (status.ok()) note(Submit(direction, slot));
  }
  bool more = status.ok();
  while (device_.in_flight() > 0) {
    const size_t count = device_.Reap(completions_, ReapWait::kUntilOne);
    const double seconds = clock_() - start;
    for (size_t i = 0; i < count; ++i) {
      note(completions_[i].status);
      if (more) moved = {.bytes = moved.bytes + request_bytes_, .seconds = seconds};
    }
    if (count > 0) more = more && status.ok() && !enough(moved);
    for (size_t i = 0; more && i < count; ++i) {
      const auto slot = static_cast<size_t>(completions_[i].tag);
      if (slots_[slot].started < rounds_max) note(Submit(direction, slot));
    }
  }
  if (!status.ok()) return status;
  return moved;
}

}  // namespace marea
