#include "swap/cpu_device.h"

#include <algorithm>
#include <utility>

#include "io/units.h"

namespace marea {
namespace {

constexpr uint32_t kQueueMax = 8;

}  // namespace

Result<std::unique_ptr<Device>> CpuDevice::Create(uint64_t vram_bytes, int numa_node) {
  ArenaOptions options;
  options.bytes = std::max(kPageBytes, vram_bytes);
  options.numa_node = numa_node;
  MAREA_ASSIGN_OR_RETURN(PinnedArena arena, PinnedArena::Create(options));
  return std::unique_ptr<Device>(new CpuDevice(std::move(arena)));
}

CpuDevice::~CpuDevice() {
  (void)Shutdown();
}

void CpuDevice::Start(std::span<std::byte> destination, std::span<const std::byte> source,
                      CopyDirection direction, const OpCall* call, Completion done) {
  copies_.Start(destination, source, direction, call, std::move(done));
}

void CpuDevice::Run(const OpCall& call, std::function<Status()> work, Completion done) {
  const Lane lane = call.op().lane;
  std::unique_ptr<LaneThread>& thread = lanes_[static_cast<int>(lane)];
  if (!thread) thread = std::make_unique<LaneThread>(LaneName(lane), kQueueMax);
  thread->Post([work = std::move(work), done = std::move(done)] { done(work()); });
}

Status CpuDevice::Shutdown() {
  copies_.Shutdown();
  for (const std::unique_ptr<LaneThread>& lane : lanes_) {
    if (lane) lane->Shutdown();
  }
  return arena_.Shutdown();
}

}  // namespace marea
