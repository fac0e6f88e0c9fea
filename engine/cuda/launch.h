// How many blocks a kernel that strides over its elements is launched with.
//
// Thread rule: a free function; it asks the calling thread's current device.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace marea {

// `tiles`, but no more blocks than the device's processors take at once (blocks_per_processor
// each). At least 1. Errors of the query are left for the launch to report.
inline unsigned StridingBlocks(uint64_t tiles, int blocks_per_processor) {
  int device = 0;
  int processors = 1;
  if (cudaGetDevice(&device) == cudaSuccess) {
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  const uint64_t resident = static_cast<uint64_t>(processors) * blocks_per_processor;
  return static_cast<unsigned>(std::max<uint64_t>(1, std::min(tiles, resident)));
}

}  // namespace marea
