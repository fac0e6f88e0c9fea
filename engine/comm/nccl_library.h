// NCCL's functions, found when they are first needed. Only in builds with MAREA_CUDA.
//
// Thread rule: any thread.
#pragma once

#include <nccl.h>

#include <string>

#include "io/status.h"

namespace marea {

// Named as in nccl.h, without the prefix.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&ncclCommGetAsyncError) comm_get_async_error;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
};

// "2.28.9" for NCCL's 22809.
std::string NcclVersionText(int code);

// Loaded once a process. Unavailable, with the remedy, where it is missing or older than the
// header that this build was made with.
Result<const NcclLibrary*> LoadNccl();

}  // namespace marea
