// What trains: memory of its own (VRAM), and the lanes h2d, d2h, compute and comm.
//
// Implementations: cpu_device (VRAM is an arena in RAM, lanes are threads) and cuda_device (lanes
// are streams). The rest of marea sees this interface only, and device addresses as plain bytes
// that the CPU must not touch.
//
// Owner: the run; outlives the swapper and the executor. Thread rule: Start and Run from one
// thread at a time (the executor's); the other calls from the run's thread while no op is in
// flight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/pinned_arena.h"
#include "io/status.h"
#include "swap/device_copy.h"
#include "swap/op_runner.h"
#include "swap/step_plan.h"

namespace marea {

// For Executor::Options; all 0 where lanes are threads.
using LaunchDepth = std::array<uint32_t, kLaneCount>;

class Device : public DeviceCopy {
 public:
  // Runs `work` on the own thread of the op's lane, compute or comm; a lane's calls come in order,
  // one at a time. On a GPU `work` puts what it does into the lane's stream, behind what the op
  // waits for, and returns at once; `done` is called when the device is through. Never blocks.
  virtual void Run(const OpCall& call, std::function<Status()> work, Completion done) = 0;

  // The one allocation that plan offsets are relative to. Gone after Shutdown.
  virtual std::span<std::byte> vram() const = 0;
  virtual LaunchDepth launch_depth() const = 0;
  // Pins RAM so that copies to and from it run by themselves; null if there is nothing to pin for.
  virtual MemoryRegistrar* registrar() = 0;
  // What could not be had and is only slower. Whole sentences.
  virtual const std::vector<std::string>& warnings() const = 0;
  // Most bytes of the device's memory in use so far, by the whole machine where only that is known.
  virtual uint64_t peak_bytes() = 0;

  // Ends the lanes and frees the memory; the first failure is returned. Blocks. REQUIRES: no op in
  // flight. Harmless to repeat.
  virtual Status Shutdown() = 0;
};

}  // namespace marea
