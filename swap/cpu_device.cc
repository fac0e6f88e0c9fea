#include "swap/cpu_device.h"

#include <algorithm>
#include <utility>

#include "io/units.h"

namespace marea {
namespace {

constexpr uint32_t kComputeQueueMax = 8;

}  // namespace

Result<std::unique_ptr<Device>> CpuDevice::Create(uint64_t vram_bytes) {
  ArenaOptions options;
  options.bytes = std::max(kPageBytes, vram_bytes);
  MAREA_ASSIGN_OR_RETURN(PinnedArena arena, PinnedArena::Create(options));
  return std::unique_ptr<Device>(new CpuDevice(std::move(arena)));
}

CpuDevice::CpuDevice(PinnedArena arena)
    : arena_(std::move(arena)), compute_("compute", kComputeQueueMax) {}

CpuDevice::~CpuDevice() {
  (void)Shutdown();
}

void CpuDevice::Start(std::span<std::byte> destination, std::span<const std::byte> source,
                      CopyDirection direction, const OpCall* call, Completion done) {
  copies_.Start(destination, source, direction, call, std::move(done));
}

void CpuDevice::Compute(const OpCall& /*call*/, std::function<Status()> work, Completion done) {
  compute_.Post([work = std::move(work), done = std::move(done)] { done(work()); });
}

Status CpuDevice::Shutdown() {
  copies_.Shutdown();
  compute_.Shutdown();
  return arena_.Shutdown();
}

}  // namespace marea
