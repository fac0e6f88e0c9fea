#include "swap/memcpy_device_copy.h"

#include <cstring>
#include <utility>

#include "io/check.h"

namespace marea {

MemcpyDeviceCopy::MemcpyDeviceCopy(uint32_t queue_max)
    : to_device_("marea-h2d", queue_max), to_host_("marea-d2h", queue_max) {}

void MemcpyDeviceCopy::Start(std::span<std::byte> destination, std::span<const std::byte> source,
                             CopyDirection direction, const OpCall* /*call*/, Completion done) {
  MAREA_CHECK(destination.size() == source.size(), "a copy has equal sides");
  LaneThread& lane = direction == CopyDirection::kToDevice ? to_device_ : to_host_;
  lane.Post([destination, source, done = std::move(done)] {
    std::memcpy(destination.data(), source.data(), source.size());
    done(Status::Ok());
  });
}

void MemcpyDeviceCopy::Shutdown() {
  to_device_.Shutdown();
  to_host_.Shutdown();
}

}  // namespace marea
