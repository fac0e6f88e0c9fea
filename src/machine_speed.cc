#include "src/machine_speed.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/model/matmul_load.h"
#include "engine/model/model_shape.h"
#include "engine/model/torch_cuda.h"
#include "engine/model/torch_runtime.h"
#include "io/drive_info.h"
#include "io/topology.h"
#include "src/bench/copy_speed.h"
#include "src/bench/memory_speed.h"
#include "swap/cuda_device.h"
#include "swap/gpu_probe.h"

namespace marea {
namespace {

constexpr int kGpu = 0;

class MachineMeter {
 public:
  explicit MachineMeter(const MachineSpeedOptions& options) : options_(options) {
    speed_.seconds = options.seconds;
    speed_.stop = options.stop;
  }

  Result<MachineProfile> Run() {
    MAREA_RETURN_IF_ERROR(Identify());
    MAREA_RETURN_IF_ERROR(
        Take(MachineFigure::kRamCopy, "RAM", [&] { return MeasureRamCopy(speed_); }));
    MAREA_RETURN_IF_ERROR(
        Take(MachineFigure::kAdamW, "AdamW", [&] { return MeasureAdamW(speed_); }));
    MAREA_RETURN_IF_ERROR(MeasureCpu());
    MAREA_RETURN_IF_ERROR(MeasureGpu());
    profile_.figure(MachineFigure::kAllGather) =
        options_.all_gather ? Measured::Of(*options_.all_gather)
                            : Measured::Not(
                                  "it takes several ranks: start them with marea launch --gpus N "
                                  "-- bench --all, or with torchrun");
    profile_.no_drives_reason = "no --nvme PATH was given";
    return std::move(profile_);
  }

 private:
  Status Identify() {
    MAREA_ASSIGN_OR_RETURN(const Topology topology, ReadTopology());
    profile_.cpu = topology.cpu_model;
    profile_.hardware_threads = topology.thread_count;
    // As many as a run takes by itself.
    speed_.threads = std::max(1u, std::min(topology.core_count, topology.cpu_quota));
    profile_.threads = speed_.threads;
    profile_.kernel = KernelVersion();
    return Status::Ok();
  }

  // What is not here is a reason; what is wrong is a failure.
  static bool IsReason(const Status& status) {
    return status.code() == ErrorCode::kUnavailable || status.code() == ErrorCode::kDoesNotFit;
  }

  template <typename Measure>
  Status Take(MachineFigure figure, const char* what, Measure measure) {
    options_.announce(what);
    const Result<double> per_second = measure();
    if (!per_second.ok() && !IsReason(per_second.status())) return per_second.status();
    profile_.figure(figure) = per_second.ok() ? Measured::Of(per_second.value())
                                              : Measured::Not(per_second.status().message());
    return Status::Ok();
  }

  Result<double> FlopPerSecond(Precision precision, std::optional<int> gpu) {
    MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<MatmulLoad> load,
                           MatmulLoad::Make(precision, gpu));
    MAREA_ASSIGN_OR_RETURN(const double seconds,
                           MedianRunSeconds(speed_, [&] { return load->Run(); }));
    return load->flop() / seconds;
  }

  Status MeasureCpu() {
    StartTorchRuntime({.threads = speed_.threads, .deterministic = false});
    MAREA_RETURN_IF_ERROR(Take(MachineFigure::kCpuFp32, "CPU matmul, fp32",
                               [&] { return FlopPerSecond(Precision::kFp32, std::nullopt); }));
    if (!CpuMultipliesBf16()) {
      profile_.figure(MachineFigure::kCpuBf16) = Measured::Not(
          "without AVX-512 torch has no fast product of bf16 matrices: blocks are computed in "
          "fp32");
      return Status::Ok();
    }
    return Take(MachineFigure::kCpuBf16, "CPU matmul, bf16",
                [&] { return FlopPerSecond(Precision::kBf16, std::nullopt); });
  }

  Status MeasureGpu() {
    const Result<GpuFacts> gpu = ProbeGpu(kGpu);
    if (!gpu.ok()) {
      const std::string reason = "no GPU: " + gpu.status().message();
      LeaveOutCopies(reason);
      profile_.figure(MachineFigure::kGpuBf16) = Measured::Not(reason);
      return Status::Ok();
    }
    profile_.gpus.push_back(gpu.value().name);
    MAREA_RETURN_IF_ERROR(MeasureLink());
    MAREA_RETURN_IF_ERROR(Take(MachineFigure::kGpuBf16, "GPU matmul, bf16", [&] {
      const Status loaded = LoadTorchCuda();
      return loaded.ok() ? FlopPerSecond(Precision::kBf16, kGpu) : Result<double>(loaded);
    }));
    // The others only for their names.
    for (int index = kGpu + 1;; ++index) {
      const Result<GpuFacts> other = ProbeGpu(index);
      if (!other.ok()) return Status::Ok();
      profile_.gpus.push_back(other.value().name);
    }
  }

  void LeaveOutCopies(const std::string& reason) {
    for (const MachineFigure figure : {MachineFigure::kH2d, MachineFigure::kD2h,
                                       MachineFigure::kBothH2d, MachineFigure::kBothD2h}) {
      profile_.figure(figure) = Measured::Not(reason);
    }
  }

  Status MeasureLink() {
    options_.announce("RAM to VRAM and back");
    const Result<CopyRates> rates = LinkRates();
    if (!rates.ok() && !IsReason(rates.status())) return rates.status();
    if (!rates.ok()) {
      LeaveOutCopies(rates.status().message());
      return Status::Ok();
    }
    profile_.figure(MachineFigure::kH2d) = Measured::Of(rates.value().h2d);
    profile_.figure(MachineFigure::kD2h) = Measured::Of(rates.value().d2h);
    profile_.figure(MachineFigure::kBothH2d) = Measured::Of(rates.value().both_h2d);
    profile_.figure(MachineFigure::kBothD2h) = Measured::Of(rates.value().both_d2h);
    return Status::Ok();
  }

  Result<CopyRates> LinkRates() {
    const StepPlan no_ops;
    CudaDeviceOptions device_options;
    device_options.gpu = kGpu;
    device_options.vram_bytes = kCopySpeedVramBytes;
    MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                           MakeCudaDevice(no_ops, device_options));
    Result<CopyRates> rates = MeasureCopies(*device, speed_);
    const Status ended = device->Shutdown();
    if (rates.ok() && !ended.ok()) return ended;
    return rates;
  }

  const MachineSpeedOptions& options_;
  SpeedOptions speed_;
  MachineProfile profile_;
};

}  // namespace

Result<MachineProfile> MeasureMachine(const MachineSpeedOptions& options) {
  return MachineMeter(options).Run();
}

}  // namespace marea
