// DeviceCopy where VRAM is an arena in RAM: one thread a direction, so that copies overlap with
// compute and with each other as they do on a GPU.
//
// Thread rule: as DeviceCopy; Shutdown from one thread.
#pragma once

#include "swap/device_copy.h"
#include "swap/lane_thread.h"

namespace marea {

class MemcpyDeviceCopy final : public DeviceCopy {
 public:
  // `queue_max`: the most copies of one direction in flight.
  explicit MemcpyDeviceCopy(uint32_t queue_max = 64);

  void Start(std::span<std::byte> destination, std::span<const std::byte> source,
             CopyDirection direction, const OpCall* call, Completion done) override;

  // Finishes what was started and ends both threads. Blocks. Harmless to repeat.
  void Shutdown();

 private:
  LaneThread to_device_;
  LaneThread to_host_;
};

}  // namespace marea
