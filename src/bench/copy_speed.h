// What the link between RAM and VRAM gives: each direction alone, and both at once.
//
// Method: the device's own copies (swap/device.h), as a run's, from and to pinned RAM. Each
// direction keeps a few pieces in flight; after a warm-up, the window counts pieces that end in it.
// Before anything is timed a pattern goes to the device and back and is compared.
//
// Thread rule: the command's thread, which blocks for the time of three figures.
#pragma once

#include "io/status.h"
#include "src/bench/memory_speed.h"
#include "swap/device.h"

namespace marea {

// VRAM that MeasureCopies needs.
inline constexpr uint64_t kCopySpeedVramBytes = uint64_t{256} << 20;

struct CopyRates {  // bytes a second
  double h2d = 0;
  double d2h = 0;
  double both_h2d = 0;
  double both_d2h = 0;
};

// Corrupt if bytes do not come back; a copy's own failure; DoesNotFit where RAM cannot be pinned;
// Cancelled. REQUIRES: device.vram() has kCopySpeedVramBytes; no op is in flight.
Result<CopyRates> MeasureCopies(Device& device, const SpeedOptions& options);

}  // namespace marea
