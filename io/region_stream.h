// A steady stream of requests over a region of one file, and how fast it went.
//
// Owner and thread rule: one thread, the one that drives the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "io/block_device.h"
#include "io/status.h"

namespace marea {

// The region is cut into requests that are dealt to the slots in turn; each slot has one request in
// flight and goes on to its next when that is done. So as many are in flight as there are slots,
// and no two of them overlap.
class RegionStream {
 public:
  // What had moved when a request finished, since the start of the stream.
  struct Moved {
    uint64_t bytes = 0;
    double seconds = 0;

    double rate() const;  // bytes per second; 0 if no time passed
  };
  using Enough = std::function<bool(const Moved&)>;

  // Streams over bytes [0, region_bytes) of file 0 of `device`. `memory` is what is written, and
  // what is read into: a slot for each request_bytes of it. `clock` tells seconds. All outlive the
  // stream. REQUIRES: whole pages everywhere; memory and region hold at least one request.
  RegionStream(BlockDevice& device, std::span<std::byte> memory, uint64_t region_bytes,
               uint64_t request_bytes, std::function<double()> clock);

  // Writes the region once, or as much of it as there is time for: `enough` is asked after each
  // request. Afterwards the region is what has been written. At least one request a slot.
  Status Fill(const Enough& enough);

  // Moves bytes over the region, again and again, until `enough` says so; what is in flight then is
  // waited for but does not count. Fails with what the device says of the first request that did.
  Result<Moved> Run(IoDirection direction, const Enough& enough);

  uint64_t region_bytes() const { return rounds_ * round_bytes(); }
  uint64_t round_bytes() const { return slots_.size() * request_bytes_; }  // all slots, once

 private:
  struct Slot {
    std::byte* data;
    uint64_t started = 0;  // requests, of this stream
  };
  Result<Moved> Stream(IoDirection direction, uint64_t rounds_max, const Enough& enough);
  Status Submit(IoDirection direction, size_t slot);

  BlockDevice& device_;
  const uint64_t request_bytes_;
  const std::function<double()> clock_;
  std::vector<Slot> slots_;
  uint64_t rounds_;  // requests of each slot in the region
  std::vector<IoCompletion> completions_;
};

}  // namespace marea
