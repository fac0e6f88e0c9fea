// Collectives between GPUs, by NCCL, on a stream of their own.
//
// libnccl.so.2 is loaded when a run needs it (torch's wheel brings one), so a CPU run never maps
// it. The algorithm is a ring, whatever NCCL would choose (Note [order of sums] in communicator.h),
// unless NCCL_ALGO says otherwise. NCCL's other variables apply as its manual says;
// NCCL_P2P_DISABLE=1 makes it do without peer-to-peer access.
//
// Owner: the run; the group outlives it, and the lane that uses its stream is shut down before it
// goes. Thread rule: collectives from one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/comm/rank_group.h"
#include "io/status.h"
#include "swap/gpu_probe.h"

namespace marea {

// VRAM that a communicator takes on each GPU, at most: its connections' buffers, kernels, counters.
constexpr uint64_t kNcclVramBytes = 640u << 20;

// "2.28.9", to be the same on all ranks; Unavailable where the library is missing or too old.
Result<std::string> NcclVersion();

// Every rank makes it together, each on a GPU of its own. `name` is as for MakeGlooCommunicator.
// InvalidArgument on all ranks where two of them use the same GPU; Failed with NCCL's words where
// it cannot connect within `timeout`; Unavailable in a build without CUDA.
Result<std::unique_ptr<Collectives>> MakeNcclCommunicator(
    RankGroup& group, const std::string& name, const GpuFacts& gpu,
    std::chrono::milliseconds timeout = std::chrono::seconds(120));

}  // namespace marea
