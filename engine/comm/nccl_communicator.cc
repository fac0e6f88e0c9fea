#include "engine/comm/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/collective_sizes.h"
#include "engine/comm/nccl_library.h"
#include "engine/comm/network.h"
#include "io/mutex.h"
#include "swap/cuda_status.h"
#include "swap/lane_thread.h"

namespace marea {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Thread blocks that a collective takes from the multiprocessors, at most: as many as keep an
// NVLink port of an H200 near its rate; what they take, compute does not get.
constexpr int kBlocksMax = 16;
// How often an error is looked for that no call would return.
constexpr milliseconds kAskEvery{500};
// How often a call that NCCL goes on with in its own threads is asked after.
constexpr milliseconds kProgressEvery{1};

// NCCL's words for a result: what it means, and what NCCL last said if that is more.
std::string NcclWords(const NcclLibrary& nccl, ncclResult_t result, ncclComm_t comm) {
  std::string words = nccl.get_error_string(result);
  const char* const last = nccl.get_last_error(comm);
  if (last != nullptr && *last != '\0') words += fmt::format(" ({})", last);
  std::replace(words.begin(), words.end(), '\n', ' ');
  return words;
}

class NcclCommunicator final : public Collectives {
 public:
  NcclCommunicator(const NcclLibrary& nccl, RankGroup& group, std::string name, int gpu)
      : nccl_(nccl), group_(group), name_(std::move(name)), gpu_(gpu) {
    aborter_ = group_.AddAborter([this](const Status& status) { Abort(status); });
  }

  ~NcclCommunicator() override {
    group_.RemoveListener(aborter_);
    // Nothing is in flight, or nobody will ever know: no need to meet the others for it.
    Abort(Status::Cancelled("the communicator has ended"));
    if (watcher_.joinable()) watcher_.join();
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  Status Connect(const ncclUniqueId& id, milliseconds timeout) {
    int least = 0;
    int greatest = 0;
    MAREA_RETURN_IF_ERROR(
        CudaStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest), "making a stream"));
    // What waits for a collective should not also wait for compute to leave it a multiprocessor.
    MAREA_RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                   "making a stream"));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = kBlocksMax;
    const World& world = group_.world();
    const auto deadline = steady_clock::now() + timeout;
    MAREA_RETURN_IF_ERROR(Call("connecting", deadline, [&] {
      return nccl_.comm_init_rank_config(&comm_, static_cast<int>(world.size), id,
                                         static_cast<int>(world.rank), &config);
    }));
    watcher_ = std::thread([this] { Watch(); });
    return Status::Ok();
  }

  Status AllGather(std::span<const std::byte> shard, std::span<std::byte> whole) override {
    MAREA_RETURN_IF_ERROR(CheckGatherSizes(name_, group_.world().size, shard.size(), whole.size()));
    return Call("all-gather", Never(), [&] {
      return nccl_.all_gather(shard.data(), whole.data(), shard.size(), ncclUint8, comm_, stream_);
    });
  }

  Status ReduceScatter(std::span<float> whole) override {
    const World& world = group_.world();
    MAREA_RETURN_IF_ERROR(CheckScatterSize(name_, world.size, whole.size()));
    const size_t part = whole.size() / world.size;
    return Call("reduce-scatter", Never(), [&] {
      return nccl_.reduce_scatter(whole.data(), whole.data() + world.rank * part, part, ncclFloat,
                                  ncclSum, comm_, stream_);
    });
  }

  void* stream() const override { return stream_; }

  Status failure() override {
    MutexLock lock(mutex_);
    return failed_.value_or(Status::Ok());
  }

 private:
  static steady_clock::time_point Never() { return steady_clock::time_point::max(); }

  // Makes a call and sees it through: NCCL may connect ranks in threads of its own, first.
  Status Call(const char* what, steady_clock::time_point deadline,
              const std::function<ncclResult_t()>& call) {
    MutexLock lock(mutex_);
    if (failed_) return *failed_;
    ncclResult_t result = call();
    while (result == ncclInProgress) {
      if (steady_clock::now() > deadline) {
        return Status::Failed(fmt::format(
            "{} over NCCL ({}) took too long; NCCL_DEBUG=INFO shows where it stands", what, name_));
      }
      changed_.WaitFor(mutex_, kProgressEvery);
      if (failed_) return *failed_;
      const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result == ncclSuccess) return Status::Ok();
    return Status::Failed(
        fmt::format("{} over NCCL ({}): {}", what, name_, NcclWords(nccl_, result, comm_)));
  }

  // Kernels of a connection that broke would wait for good.
  void Watch() {
    SetThreadName("nccl-watch");
    std::optional<Status> broken;
    {
      MutexLock lock(mutex_);
      while (!failed_ && !broken) {
        changed_.WaitFor(mutex_, kAskEvery);
        if (failed_) return;
        ncclResult_t result = ncclSuccess;
        const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &result);
        if (asked != ncclSuccess) result = asked;
        if (result == ncclSuccess || result == ncclInProgress) continue;
        broken =
            Status::Failed(fmt::format("NCCL ({}): {}", name_, NcclWords(nccl_, result, comm_)));
      }
    }
    // NCCL's word for it is the consequence; the group may know the cause.
    if (broken) Abort(group_.CauseOf(*broken));
  }

  // What is in the stream ends.
  void Abort(const Status& status) {
    (void)cudaSetDevice(gpu_);
    MutexLock lock(mutex_);
    if (!failed_) failed_ = status;
    if (comm_ != nullptr) (void)nccl_.comm_abort(std::exchange(comm_, nullptr));
    changed_.NotifyAll();
  }

  const NcclLibrary& nccl_;
  RankGroup& group_;
  const std::string name_;
  const int gpu_;
  cudaStream_t stream_ = nullptr;
  Mutex mutex_;
  CondVar changed_;
  ncclComm_t comm_ GUARDED_BY(mutex_) = nullptr;  // null once aborted
  std::optional<Status> failed_ GUARDED_BY(mutex_);
  uint64_t aborter_ = 0;
  std::thread watcher_;
};

// What tells this rank's GPU from every other of the run. NCCL takes ranks with different
// NCCL_HOSTIDs for ranks on different machines, and so do we.
std::string GpuName(const GpuFacts& gpu) {
  const char* const host = std::getenv("NCCL_HOSTID");
  return fmt::format("{} of {}", gpu.pci, host == nullptr ? HostName() : std::string(host));
}

Status CheckOwnGpus(const RankGroup& group, const std::vector<std::string>& gpus) {
  std::map<std::string, uint32_t> owners;
  for (uint32_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [owner, is_new] = owners.emplace(gpus[rank], rank);
    if (is_new) continue;
    return Status::InvalidArgument(
        fmt::format("rank {} and {} have the same GPU, {}: start one rank for each GPU, and let "
                    "each see its own or all of them (CUDA_VISIBLE_DEVICES)",
                    owner->second, group.title(rank), gpus[rank]));
  }
  return Status::Ok();
}

}  // namespace

Result<std::string> NcclVersion() {
  MAREA_ASSIGN_OR_RETURN(const NcclLibrary* nccl, LoadNccl());
  int version = 0;
  (void)nccl->get_version(&version);
  return NcclVersionText(version);
}

Result<std::unique_ptr<Collectives>> MakeNcclCommunicator(RankGroup& group, const std::string& name,
                                                          const GpuFacts& gpu,
                                                          milliseconds timeout) {
  MAREA_ASSIGN_OR_RETURN(const NcclLibrary* nccl, LoadNccl());
  if (!group.TakeName(name)) {
    return Status::InvalidArgument(fmt::format("there is a communicator {} already", name));
  }
  MAREA_ASSIGN_OR_RETURN(const std::vector<std::string> gpus,
                         group.Exchange("the GPUs of NCCL (" + name + ")", GpuName(gpu)));
  MAREA_RETURN_IF_ERROR(CheckOwnGpus(group, gpus));
  MAREA_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(gpu.index), "choosing the GPU"));
  ncclUniqueId id{};
  if (group.world().rank == 0) {
    const ncclResult_t result = nccl->get_unique_id(&id);
    if (result != ncclSuccess) {
      return Status::Failed("starting NCCL: " + NcclWords(*nccl, result, nullptr));
    }
  }
  MAREA_ASSIGN_OR_RETURN(
      const std::vector<std::string> ids,
      group.Exchange("the start of NCCL (" + name + ")", std::string(id.internal, sizeof(id))));
  std::copy_n(ids[0].begin(), sizeof(id), id.internal);
  auto communicator = std::make_unique<NcclCommunicator>(*nccl, group, name, gpu.index);
  const Status connected = communicator->Connect(id, timeout);
  if (!connected.ok()) return group.CauseOf(connected);
  return std::unique_ptr<Collectives>(std::move(communicator));
}

}  // namespace marea
