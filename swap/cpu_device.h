// The CPU as a device: VRAM is an arena in RAM with a budget of its own, each lane a thread.
//
// Thread rule: as Device.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/pinned_arena.h"
#include "swap/device.h"
#include "swap/lane_thread.h"
#include "swap/memcpy_device_copy.h"

namespace marea {

class CpuDevice final : public Device {
 public:
  // DoesNotFit or Unavailable where the arena cannot be had.
  static Result<std::unique_ptr<Device>> Create(uint64_t vram_bytes, int numa_node = kAnyNumaNode);
  ~CpuDevice() override;

  void Start(std::span<std::byte> destination, std::span<const std::byte> source,
             CopyDirection direction, const OpCall* call, Completion done) override;
  void Run(const OpCall& call, std::function<Status()> work, Completion done) override;

  std::span<std::byte> vram() const override { return arena_.bytes(); }
  LaunchDepth launch_depth() const override { return {}; }
  MemoryRegistrar* registrar() override { return nullptr; }
  const std::vector<std::string>& warnings() const override { return arena_.warnings(); }
  uint64_t peak_bytes() override { return arena_.bytes().size(); }
  Status Shutdown() override;

 private:
  explicit CpuDevice(PinnedArena arena) : arena_(std::move(arena)) {}

  PinnedArena arena_;
  MemcpyDeviceCopy copies_;
  std::array<std::unique_ptr<LaneThread>, kLaneCount> lanes_;  // each made at its first op
};

}  // namespace marea
