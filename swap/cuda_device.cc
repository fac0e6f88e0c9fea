#include "swap/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "io/check.h"
#include "io/units.h"
#include "swap/cuda_status.h"
#include "swap/stream_lane.h"

namespace marea {
namespace {

// How many ops a stream may hold: enough that it never runs dry while the next are enqueued.
constexpr uint32_t kCopyLaunchDepth = 8;
constexpr uint32_t kComputeLaunchDepth = 4;
constexpr uint32_t kCommLaunchDepth = 4;
// RAM is pinned in pieces of this size by so many threads.
constexpr uint64_t kPinPieceBytes = kGiB;
constexpr uint64_t kPinThreadsMax = 8;

class CudaRegistrar final : public MemoryRegistrar {
 public:
  explicit CudaRegistrar(int gpu) : gpu_(gpu) {}

  Status Register(std::span<std::byte> memory) override {
    const Status status = ForPieces(memory, [&](std::span<std::byte> piece) {
      const cudaError_t error =
          cudaHostRegister(piece.data(), piece.size(), cudaHostRegisterPortable);
      if (error == cudaSuccess) return Status::Ok();
      (void)cudaGetLastError();
      return Status::DoesNotFit(fmt::format(
          "the driver refuses to pin {} of RAM ({}): lower --ram, or raise the limit of locked "
          "memory (ulimit -l)",
          FormatBytes(piece.size()), cudaGetErrorString(error)));
    });
    if (status.ok()) pinned_.push_back(memory);
    return status;
  }
  Status Unregister(std::span<std::byte> memory) override {
    std::erase_if(pinned_, [&](const auto& other) { return other.data() == memory.data(); });
    return ForPieces(memory, [](std::span<std::byte> piece) {
      return CudaStatus(cudaHostUnregister(piece.data()), "unpinning RAM");
    });
  }

  // How far the pinned piece that holds `at` goes on from there; no limit for other memory.
  uint64_t BytesOfPieceFrom(const std::byte* at) const {
    for (const std::span<std::byte>& memory : pinned_) {
      if (at < memory.data() || at >= memory.data() + memory.size()) continue;
      return kPinPieceBytes - static_cast<uint64_t>(at - memory.data()) % kPinPieceBytes;
    }
    return UINT64_MAX;
  }

 private:
  // Calls `work` for every piece, from several threads. The first failure in order of address; on
  // failure of Register the process is about to end, so pieces stay as they are.
  template <typename Work>
  Status ForPieces(std::span<std::byte> memory, Work work) const {
    const uint64_t pieces = DivideRoundUp(memory.size(), kPinPieceBytes);
    std::vector<Status> statuses(pieces, Status::Ok());
    const auto run = [&](uint64_t first, uint64_t step) {
      for (uint64_t i = first; i < pieces; i += step) {
        const uint64_t begin = i * kPinPieceBytes;
        statuses[i] = work(memory.subspan(begin, std::min(kPinPieceBytes, memory.size() - begin)));
      }
    };
    const uint64_t threads = std::min(pieces, kPinThreadsMax);
    std::vector<std::thread> helpers;
    for (uint64_t i = 1; i < threads; ++i) {
      helpers.emplace_back([&, i] {
        (void)cudaSetDevice(gpu_);  // new threads begin on GPU 0
        run(i, threads);
      });
    }
    run(0, std::max<uint64_t>(threads, 1));
    for (std::thread& helper : helpers) helper.join();
    for (Status& status : statuses) {
      if (!status.ok()) return std::move(status);
    }
    return Status::Ok();
  }

  const int gpu_;
  std::vector<std::span<std::byte>> pinned_;  // changes only while nothing is copied
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const StepPlan& plan, const CudaDeviceOptions& options)
      : plan_(plan), options_(options), registrar_(options.gpu) {
    depth_[static_cast<int>(Lane::kH2d)] = kCopyLaunchDepth;
    depth_[static_cast<int>(Lane::kD2h)] = kCopyLaunchDepth;
    depth_[static_cast<int>(Lane::kCompute)] = kComputeLaunchDepth;
    if (options.comm_stream) depth_[static_cast<int>(Lane::kComm)] = kCommLaunchDepth;
  }
  ~CudaDevice() override { (void)Shutdown(); }

  Status Initialise() {
    MAREA_RETURN_IF_ERROR(Allocate());
    for (const Lane lane : {Lane::kH2d, Lane::kD2h, Lane::kCompute, Lane::kComm}) {
      StreamLane::Options options;
      options.name = LaneName(lane);
      options.gpu = options_.gpu;
      options.launch_depth = depth_[static_cast<int>(lane)];
      if (options.launch_depth == 0) continue;
      if (lane == Lane::kCompute) {
        options.stream = static_cast<cudaStream_t>(options_.compute_stream);
      } else if (lane == Lane::kComm) {
        options.stream = static_cast<cudaStream_t>(options_.comm_stream);
      }
      MAREA_ASSIGN_OR_RETURN(lanes_[static_cast<int>(lane)], StreamLane::Create(options));
    }
    return Status::Ok();
  }

  void Start(std::span<std::byte> destination, std::span<const std::byte> source,
             CopyDirection direction, const OpCall* call, Completion done) override {
    MAREA_CHECK(destination.size() == source.size(), "a copy has equal sides");
    const bool in = direction == CopyDirection::kToDevice;
    StreamLane& lane = LaneOf(in ? Lane::kH2d : Lane::kD2h);
    lane.Run(
        OrderOf(call),
        [this, destination, source, in, stream = lane.stream()] {
          return Copy(destination, source, in, stream);
        },
        std::move(done));
  }

  void Run(const OpCall& call, std::function<Status()> work, Completion done) override {
    LaneOf(call.op().lane).Run(OrderOf(&call), std::move(work), std::move(done));
  }

  std::span<std::byte> vram() const override { return vram_; }
  LaunchDepth launch_depth() const override { return depth_; }
  MemoryRegistrar* registrar() override { return &registrar_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }

  uint64_t peak_bytes() override {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
      peak_bytes_ = std::max<uint64_t>(peak_bytes_, total_bytes - free_bytes);
    }
    return peak_bytes_;
  }

  Status Shutdown() override {
    for (const std::unique_ptr<StreamLane>& lane : lanes_) {
      if (lane) lane->Shutdown();
    }
    std::byte* const memory = std::exchange(vram_, {}).data();
    return memory == nullptr ? Status::Ok()
                             : CudaStatus(cudaFree(memory), "freeing the GPU's memory");
  }

 private:
  // CUDA refuses a copy whose RAM lies in two pinned pieces: it is cut where they meet.
  Status Copy(std::span<std::byte> destination, std::span<const std::byte> source, bool in,
              cudaStream_t stream) const {
    while (!source.empty()) {
      const std::byte* host = in ? source.data() : destination.data();
      const size_t bytes = std::min<uint64_t>(source.size(), registrar_.BytesOfPieceFrom(host));
      MAREA_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(destination.data(), source.data(), bytes,
                                     in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream),
                     in ? "copying to the GPU" : "copying from the GPU"));
      source = source.subspan(bytes);
      destination = destination.subspan(bytes);
    }
    return Status::Ok();
  }

  StreamLane& LaneOf(Lane lane) { return *lanes_[static_cast<int>(lane)]; }

  Status Allocate() {
    void* memory = nullptr;
    const uint64_t bytes = std::max(kPageBytes, options_.vram_bytes);
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      size_t free_bytes = 0;
      size_t total_bytes = 0;
      (void)cudaMemGetInfo(&free_bytes, &total_bytes);
      return Status::DoesNotFit(fmt::format(
          "GPU {} has {} free, and the plan places {} there: another process has taken memory "
          "(nvidia-smi shows which); end it or pass a smaller --vram",
          options_.gpu, FormatBytes(free_bytes), FormatBytes(bytes)));
    }
    MAREA_RETURN_IF_ERROR(CudaStatus(error, "allocating the GPU's memory"));
    vram_ = {static_cast<std::byte*>(memory), bytes};
    return Status::Ok();
  }

  StreamLane::Order OrderOf(const OpCall* call) {
    if (call == nullptr) return {StreamLane::kNoPosition, {}};
    const Op& op = call->op();
    const auto lane = static_cast<size_t>(op.lane);
    StreamLane::Order order{call->turn * plan_.lane_ops[lane].size() + op.position, {}};
    order.wait = [this, &op, turn = call->turn](cudaStream_t stream) {
      return WaitForLanes(op, turn, stream);
    };
    return order;
  }

  Status WaitForLanes(const Op& op, uint64_t turn, cudaStream_t stream) {
    for (const Wait& wait : op.waits) {
      const auto lane = static_cast<size_t>(wait.lane);
      if (depth_[lane] == 0 || wait.lane == op.lane || turn < wait.steps_back) continue;
      const uint64_t position =
          (turn - wait.steps_back) * plan_.lane_ops[lane].size() + wait.position;
      MAREA_RETURN_IF_ERROR(lanes_[lane]->StreamWaitFor(stream, position));
    }
    return Status::Ok();
  }

  const StepPlan& plan_;
  const CudaDeviceOptions options_;
  LaunchDepth depth_{};
  CudaRegistrar registrar_;
  std::vector<std::string> warnings_;
  std::span<std::byte> vram_;
  uint64_t peak_bytes_ = 0;
  std::array<std::unique_ptr<StreamLane>, kLaneCount> lanes_;
};

}  // namespace

Result<std::unique_ptr<Device>> MakeCudaDevice(const StepPlan& plan,
                                               const CudaDeviceOptions& options) {
  auto device = std::make_unique<CudaDevice>(plan, options);
  MAREA_RETURN_IF_ERROR(device->Initialise());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace marea
