// What a build without CUDA has in the place of nccl_communicator.cc.
#include "engine/comm/nccl_communicator.h"

namespace marea {
namespace {

Status NoNccl() {
  return Status::Unavailable("this build of marea has no CUDA, and so no NCCL");
}

}  // namespace

Result<std::string> NcclVersion() {
  return NoNccl();
}

Result<std::unique_ptr<Collectives>> MakeNcclCommunicator(RankGroup& /*group*/,
                                                          const std::string& /*name*/,
                                                          const GpuFacts& /*gpu*/,
                                                          std::chrono::milliseconds /*timeout*/) {
  return NoNccl();
}

}  // namespace marea
