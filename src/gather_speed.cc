#include "src/gather_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/comm/rank_group.h"
#include "engine/report/version.h"
#include "io/mutex.h"
#include "io/pinned_arena.h"
#include "io/steady_seconds.h"
#include "io/units.h"
#include "src/bench/fio_peer.h"
#include "src/bench/page_stamps.h"
#include "src/bench/stopped.h"
#include "swap/cpu_device.h"
#include "swap/cuda_device.h"
#include "swap/gpu_probe.h"

namespace marea {
namespace {

// Of all ranks together: far more than caches hold, and on GPUs as much as a large layer.
constexpr uint64_t kGatherBytesGpu = kGiB;
constexpr uint64_t kGatherBytesCpu = 64 * kMiB;
// Gathers under way at once, as many as a device launches ahead in a step: what it takes to start
// one and to hear of its end hides behind the others.
constexpr uint64_t kGathersTogether = 4;
constexpr uint64_t kRepeatsMin = 3;
constexpr uint64_t kRepeatsMax = 10'000;

// A plan of one op: a gather in the comm lane.
StepPlan GatherPlan() {
  StepPlan plan;
  plan.ops.push_back(Op{.kind = OpKind::kGather, .lane = Lane::kComm});
  plan.lane_ops[static_cast<int>(Lane::kComm)] = {0};
  return plan;
}

// Blocks until what `start` starts has called its completion, `count` times. The first failure.
template <typename Start>
Status Await(uint64_t count, Start start) {
  Mutex mutex;
  CondVar changed;
  Status first = Status::Ok();
  uint64_t left = count;
  for (uint64_t i = 0; i < count; ++i) {
    start(Completion([&](Status status) {
      const MutexLock lock(mutex);
      if (first.ok()) first = std::move(status);
      --left;
      changed.NotifyOne();
    }));
  }
  const MutexLock lock(mutex);
  while (left > 0) changed.Wait(mutex);
  return first;
}

class GatherMeter {
 public:
  GatherMeter(RankGroup& group, Collectives& ranks, Device& device, const StepPlan& plan)
      : group_(group),
        ranks_(ranks),
        device_(device),
        plan_(plan),
        part_bytes_(device.vram().size() / group.world().size / kPageBytes * kPageBytes),
        whole_(device.vram().first(part_bytes_ * group.world().size)) {}

  Result<double> Run(const SpeedOptions& options) {
    MAREA_RETURN_IF_ERROR(GatherAndCompare());
    const double begin = SteadySeconds();
    MAREA_RETURN_IF_ERROR(Gather(kGathersTogether));
    MAREA_ASSIGN_OR_RETURN(const uint64_t repeats,
                           AgreeOnRepeats(options.seconds / (SteadySeconds() - begin)));
    std::vector<double> seconds(repeats);
    for (double& each : seconds) {
      if (options.stop != nullptr && *options.stop) {
        return Stopped();
      }
      const double start = SteadySeconds();
      MAREA_RETURN_IF_ERROR(Gather(kGathersTogether));
      each = (SteadySeconds() - start) / kGathersTogether;
    }
    return static_cast<double>(whole_.size() - part_bytes_) / Median(std::move(seconds));
  }

 private:
  std::span<std::byte> PartOf(uint32_t rank) const {
    return whole_.subspan(rank * part_bytes_, part_bytes_);
  }

  Status Gather(uint64_t count) {
    MAREA_RETURN_IF_ERROR(Await(count, [&](Completion done) {
      const OpCall call{&plan_, 0, turn_++, {}, {}};
      device_.Run(
          call, [&] { return ranks_.AllGather(PartOf(group_.world().rank), whole_); },
          std::move(done));
    }));
    return ranks_.failure();
  }

  // Each rank's part holds pages that its number seeds.
  Status GatherAndCompare() {
    ArenaOptions options;
    options.bytes = 2 * part_bytes_;
    options.registrar = device_.registrar();
    MAREA_ASSIGN_OR_RETURN(PinnedArena arena, PinnedArena::Create(options));
    const Status compared =
        Compare(arena.bytes().first(part_bytes_), arena.bytes().subspan(part_bytes_, part_bytes_));
    const Status unpinned = arena.Shutdown();
    return compared.ok() ? unpinned : compared;
  }

  Status Compare(std::span<std::byte> expected, std::span<std::byte> actual) {
    FillRandomPages(expected, group_.world().rank);
    MAREA_RETURN_IF_ERROR(Await(1, [&](Completion done) {
      device_.Start(PartOf(group_.world().rank), expected, CopyDirection::kToDevice, nullptr,
                    std::move(done));
    }));
    MAREA_RETURN_IF_ERROR(Gather(1));
    for (uint32_t rank = 0; rank < group_.world().size; ++rank) {
      FillRandomPages(expected, rank);
      MAREA_RETURN_IF_ERROR(Await(1, [&](Completion done) {
        device_.Start(actual, PartOf(rank), CopyDirection::kToHost, nullptr, std::move(done));
      }));
      if (std::memcmp(expected.data(), actual.data(), part_bytes_) == 0) continue;
      return Status::Corrupt(
          fmt::format("an all-gather brought other bytes than {} sent", group_.title(rank)));
    }
    return Status::Ok();
  }

  Result<uint64_t> AgreeOnRepeats(double wanted) {
    const auto own =
        static_cast<uint64_t>(std::clamp(wanted, double{kRepeatsMin}, 1.0 * kRepeatsMax));
    MAREA_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           group_.Exchange("how often to gather", fmt::format("{}", own)));
    uint64_t repeats = kRepeatsMin;
    (void)std::from_chars(all[0].data(), all[0].data() + all[0].size(), repeats);
    return repeats;
  }

  RankGroup& group_;
  Collectives& ranks_;
  Device& device_;
  const StepPlan& plan_;
  const uint64_t part_bytes_;
  const std::span<std::byte> whole_;
  uint64_t turn_ = 0;
};

Result<double> MeasureIn(RankGroup& group, const SpeedOptions& options) {
  const Result<GpuFacts> gpu = ProbeGpu(GpuOfLocalRank(group.world().local_rank));
  MAREA_RETURN_IF_ERROR(
      group.Agree({{"version of marea", Version()}, {"device", gpu.ok() ? "GPU" : "CPU"}}));
  const StepPlan plan = GatherPlan();
  std::unique_ptr<Collectives> ranks;
  std::unique_ptr<Device> device;
  if (gpu.ok()) {
    MAREA_ASSIGN_OR_RETURN(ranks, MakeNcclCommunicator(group, "gather", gpu.value()));
    CudaDeviceOptions cuda;
    cuda.gpu = gpu.value().index;
    cuda.vram_bytes = kGatherBytesGpu;
    cuda.comm_stream = ranks->stream();
    MAREA_ASSIGN_OR_RETURN(device, MakeCudaDevice(plan, cuda));
  } else {
    MAREA_ASSIGN_OR_RETURN(ranks, MakeGlooCommunicator(group, "gather"));
    MAREA_ASSIGN_OR_RETURN(device, CpuDevice::Create(kGatherBytesCpu));
  }
  Result<double> rate = GatherMeter(group, *ranks, *device, plan).Run(options);
  const Status ended = device->Shutdown();
  if (rate.ok() && !ended.ok()) return ended;
  return rate;
}

}  // namespace

Result<double> MeasureGather(const World& world, const SpeedOptions& options) {
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, RankGroup::Join(world));
  const Result<double> rate = MeasureIn(*group, options);
  if (rate.ok() || rate.status().code() == ErrorCode::kInvalidArgument) {
    const Status left = group->Leave();
    return rate.ok() && !left.ok() ? Result<double>(left) : rate;
  }
  const Status cause = group->CauseOf(rate.status());
  group->Fail(rate.status());
  return cause;
}

}  // namespace marea
