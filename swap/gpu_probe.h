// Is there a GPU that this build can train on, and what is it?
//
// The commonest failure of all is CUDA that does not work, so each way of failing has its own
// sentence with the remedy. Thread rule: any thread. ProbeGpu starts the CUDA runtime and makes
// the GPU's context in this process: some tenths of a second and some hundred MiB of VRAM.
#pragma once

#include <cstdint>
#include <string>

#include "io/status.h"

namespace marea {

struct GpuFacts {
  int index = 0;     // as CUDA counts (CUDA_VISIBLE_DEVICES applies)
  std::string name;  // "NVIDIA H200"
  std::string pci;   // "0000:1b:00.0"
  int major = 0;     // compute capability
  int minor = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;  // with this process's context already counted
  int driver_version = 0;   // the newest CUDA that the driver serves: 13000 for 13.0
  int runtime_version = 0;  // what this build is made with
  uint32_t sm_count = 0;
};

// Can this build use a GPU at all?
bool BuiltWithCuda();

// Does this machine have NVIDIA's driver? Cheap; starts nothing.
bool HasNvidiaDriver();

// Which GPU is the one of a machine's `local_rank`-th rank: ranks count through the GPUs; where a
// launcher lets each see only its own, that is the first.
int GpuOfLocalRank(uint32_t local_rank);

// Unavailable, with the reason and the remedy: a build without CUDA, no driver, a driver older than
// the build, no GPU, a GPU older than the build's code, a GPU in use exclusively or out of memory.
// That the CPU would do is for the caller to say.
Result<GpuFacts> ProbeGpu(int index);

}  // namespace marea
