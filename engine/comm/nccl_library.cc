#include "engine/comm/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <type_traits>

namespace marea {
namespace {

constexpr const char* kRemedy = "install the CUDA build of torch, whose wheel brings it";

Result<const NcclLibrary*> Load() {
  // A ring sums in an order that sizes and ranks alone decide. Read by NCCL as it starts.
  (void)setenv("NCCL_ALGO", "Ring", /*overwrite=*/0);
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::Unavailable(fmt::format("NCCL cannot be loaded ({}); {}", dlerror(), kRemedy));
  }
  static NcclLibrary functions;
  bool complete = true;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete = complete && function != nullptr;
  };
  find("ncclGetVersion", functions.get_version);
  find("ncclGetUniqueId", functions.get_unique_id);
  find("ncclCommInitRankConfig", functions.comm_init_rank_config);
  find("ncclCommGetAsyncError", functions.comm_get_async_error);
  find("ncclCommAbort", functions.comm_abort);
  find("ncclAllGather", functions.all_gather);
  find("ncclReduceScatter", functions.reduce_scatter);
  find("ncclGetErrorString", functions.get_error_string);
  find("ncclGetLastError", functions.get_last_error);
  int version = 0;
  if (complete) (void)functions.get_version(&version);
  if (!complete || version < NCCL_VERSION_CODE) {
    return Status::Unavailable(
        fmt::format("NCCL {} here is older than the {} that this build was made with; {}",
                    NcclVersionText(version), NcclVersionText(NCCL_VERSION_CODE), kRemedy));
  }
  return &functions;
}

}  // namespace

std::string NcclVersionText(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

Result<const NcclLibrary*> LoadNccl() {
  static const Result<const NcclLibrary*> library = Load();
  return library;
}

}  // namespace marea
