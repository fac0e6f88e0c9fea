#include "engine/model/torch_cuda.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "io/check.h"
#include "io/units.h"

namespace marea {
namespace {

// Besides the reserve: allocations of up to 1 MiB have segments of their own, 2 MiB each.
constexpr uint64_t kSmallSegmentsBytes = 64 * kMiB;

// Through its vtable alone: libc10_cuda is loaded, but not linked.
c10::cuda::CUDACachingAllocator::CUDAAllocator& Allocator() {
  return *static_cast<c10::cuda::CUDACachingAllocator::CUDAAllocator*>(
      c10::getDeviceAllocator(c10::kCUDA));
}

c10::Stream StreamOf(int gpu) {
  // The first stream of torch's pool; asked for once, so that every caller gets the same.
  static const c10::Stream stream =
      c10::impl::VirtualGuardImpl(c10::kCUDA)
          .getStreamFromGlobalPool(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)));
  return stream;
}

}  // namespace

Status LoadTorchCuda() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return Status::Unavailable(
        fmt::format("torch's CUDA libraries cannot be loaded ({}); install the CUDA build of the "
                    "same torch (pip install torch)",
                    dlerror()));
  }
  try {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    // Two libraries of different generations in one process share streams and memory: they must
    // mean the same by them.
    const long version = at::detail::getCUDAHooks().versionCUDART();
    if (version / 1000 != CUDART_VERSION / 1000) {
      return Status::Unavailable(fmt::format(
          "torch here is built with CUDA {} and marea with CUDA {}; install the torch that marea "
          "was built beside (scripts/requirements.txt), or build marea again",
          version / 1000, CUDART_VERSION / 1000));
    }
    // Its attention kernels are chosen at run time by heuristics; FlashAttention's are not.
    at::globalContext().setSDPUseCuDNN(false);
  } catch (const std::exception& error) {
    return Status::Unavailable(
        fmt::format("torch cannot start CUDA: {}; is its CUDA version served by the driver "
                    "(nvidia-smi)?",
                    error.what()));
  }
  return Status::Ok();
}

void* TorchComputeStream(int gpu) {
  return StreamOf(gpu).native_handle();
}

Status ReserveTorchMemory(int gpu, uint64_t bytes) {
  const auto device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const c10::Stream before = guard.exchangeStream(StreamOf(gpu));
  Status status = Status::Ok();
  try {
    const auto [free_bytes, total_bytes] = Allocator().getMemoryInfo(device.index());
    (void)free_bytes;
    // A process that ran before holds something already: cuBLAS's workspaces, its own reserve.
    const uint64_t held = ReadTorchMemory(gpu).reserved_bytes;
    const double share =
        static_cast<double>(held + bytes + kSmallSegmentsBytes) / static_cast<double>(total_bytes);
    Allocator().setMemoryFraction(std::min(1.0, share), device.index());
    // Taken and given back to torch's cache: one segment, from which every temporary is cut.
    (void)at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device));
    Allocator().resetPeakStats(device.index());
  } catch (const c10::OutOfMemoryError&) {
    status = Status::DoesNotFit(fmt::format(
        "GPU {} has no {} left for the compute library's temporaries: another process has taken "
        "memory (nvidia-smi shows which); end it or pass a smaller --vram",
        gpu, FormatBytes(bytes)));
  } catch (const c10::Error& error) {
    status = Status::Failed(fmt::format("torch cannot reserve {} on GPU {}: {}", FormatBytes(bytes),
                                        gpu, error.what_without_backtrace()));
  }
  guard.exchangeStream(before);
  return status;
}

void EnterComputeStream(int gpu) {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  guard.setDevice(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)));
  guard.exchangeStream(StreamOf(gpu));
}

TorchMemory ReadTorchMemory(int gpu) {
  const c10::CachingDeviceAllocator::DeviceStats stats =
      Allocator().getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
  constexpr size_t kAll = 0;  // StatType::AGGREGATE
  TorchMemory memory;
  memory.reserved_bytes = static_cast<uint64_t>(stats.reserved_bytes[kAll].current);
  memory.reserved_bytes_peak = static_cast<uint64_t>(stats.reserved_bytes[kAll].peak);
  memory.allocated_bytes_peak = static_cast<uint64_t>(stats.allocated_bytes[kAll].peak);
  memory.retry_count = static_cast<uint64_t>(stats.num_alloc_retries);
  memory.segment_count = static_cast<uint64_t>(stats.segment[kAll].allocated);
  return memory;
}

}  // namespace marea
