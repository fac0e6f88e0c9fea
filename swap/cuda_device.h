// An NVIDIA GPU as a device: one allocation for VRAM, and a stream for each of h2d, d2h, compute
// and, where there are several ranks, comm.
//
// Nothing here waits for the whole device: streams wait for each other by events, the CPU for
// single ops. RAM is pinned in pieces, several threads at once, which is faster than cudaHostAlloc.
//
// Thread rule: as Device.
#pragma once

#include <cstdint>
#include <memory>

#include "io/status.h"
#include "swap/device.h"
#include "swap/gpu_probe.h"
#include "swap/step_plan.h"

namespace marea {

struct CudaDeviceOptions {
  int gpu = 0;
  uint64_t vram_bytes = 0;
  void* compute_stream = nullptr;  // a cudaStream_t of torch's; null: the device makes its own
  void* comm_stream = nullptr;     // one that collectives are put into; null: there are none
};

// The plan outlives the device. DoesNotFit where the memory is not free (any more); Unavailable in
// a build without CUDA. REQUIRES: ProbeGpu(gpu) was Ok.
Result<std::unique_ptr<Device>> MakeCudaDevice(const StepPlan& plan,
                                               const CudaDeviceOptions& options);

}  // namespace marea
