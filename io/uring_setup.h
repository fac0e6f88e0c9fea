// Parts of uring_device: making a ring with the best flags that the kernel takes, and registering
// buffers with it.
//
// Owned by one device. Everything here may run on the thread that makes the device.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/status.h"

namespace marea {

class Ring {
 public:
  Ring() = default;
  Ring(Ring&&) = default;

  // Unavailable names what the kernel said. REQUIRES: called once.
  Status Open(unsigned entries);

  io_uring* get() const { return ring_.get(); }
  bool starts_disabled() const { return (flags_ & IORING_SETUP_R_DISABLED) != 0; }
  // Without it (before Linux 5.11) a wait with a limit costs a request of its own.
  bool can_wait_with_limit() const { return (ring_->features & IORING_FEAT_EXT_ARG) != 0; }

 private:
  struct Exit {
    void operator()(io_uring* ring) const;
  };
  std::unique_ptr<io_uring, Exit> ring_;  // set once it is open
  unsigned flags_ = 0;
};

// The table of registered buffers: arenas cut at multiples of kAddressCutBytes.
class RegisteredBuffers {
 public:
  // Unavailable, with the bytes and the memlock limit, if the kernel refuses; nothing is registered
  // then. REQUIRES: the ring is open, nothing is registered yet.
  Status Register(const Ring& ring, std::span<const std::span<std::byte>> buffers);

  // Index of the registered buffer that holds all of [data, data + bytes), or -1. A piece that does
  // not cross a multiple of kAddressCutBytes lies within one buffer or reaches out of its arena.
  int Find(const std::byte* data, uint64_t bytes) const;

 private:
  struct Part {
    uintptr_t begin;
    uintptr_t end;
    int index;
  };
  std::vector<Part> parts_;  // sorted by address
};

}  // namespace marea
