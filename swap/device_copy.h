// Copies between RAM and VRAM.
//
// Implementations: memcpy_device_copy (the CPU's stand-in for VRAM is RAM), and CUDA streams in a
// GPU build. Owner: the run; outlives the swapper. Thread rule: Start from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "swap/op_runner.h"

namespace marea {

enum class CopyDirection : uint8_t { kToDevice, kToHost };

class DeviceCopy {
 public:
  virtual ~DeviceCopy() = default;
  // Never blocks. Copies of one direction run in the order given; the two directions overlap.
  // `call` is the op that the copy carries out: on a GPU the copy waits there for the device lanes
  // that the op waits for, and `done` is told of the launch; null outside of a step. `done` is
  // called once, from any thread, when the bytes are final. REQUIRES: equal sizes; both spans stay
  // in place until `done`.
  virtual void Start(std::span<std::byte> destination, std::span<const std::byte> source,
                     CopyDirection direction, const OpCall* call, Completion done) = 0;
};

}  // namespace marea
