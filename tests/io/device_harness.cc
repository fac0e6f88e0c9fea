#include "tests/io/device_harness.h"

#include <array>
#include <optional>
#include <vector>

#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/pinned_arena.h"
#include "io/units.h"
#include "tests/fakes/faulty_block_device.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

constexpr uint64_t kFileBytes = 32 * kMiB;
constexpr uint64_t kMemoryBytes = 32 * kMiB;

PinnedArena MakeArena() {
  return PinnedArena::Create({.bytes = kMemoryBytes,
                              .numa_node = kAnyNumaNode,
                              .touch_threads = 1,
                              .registrar = nullptr})
      .value();
}

class RealHarness : public DeviceHarness {
 public:
  RealHarness()
      : file_(DataFile::Create(folder_.File("data"), kFileBytes).value()), arena_(MakeArena()) {}

  Status Make(const BlockDeviceOptions& options) {
    const std::array files = {DeviceFile{file_.fd(), file_.path()}};
    const std::array buffers = {arena_.bytes()};
    MAREA_ASSIGN_OR_RETURN(device_, MakeBlockDevice(files, buffers, options));
    return Status::Ok();
  }
  BlockDevice& device() override { return *device_; }
  uint64_t file_bytes() const override { return kFileBytes; }
  std::span<std::byte> memory() override { return arena_.bytes(); }

 private:
  TempDir folder_;
  DataFile file_;
  PinnedArena arena_;
  std::unique_ptr<BlockDevice> device_;
};

class SimulatedHarness : public DeviceHarness {
 public:
  explicit SimulatedHarness(const BlockDeviceOptions& options)
      : arena_(MakeArena()), device_(clock_, DeviceOptions(options)) {}
  BlockDevice& device() override { return device_; }
  uint64_t file_bytes() const override { return kFileBytes; }
  std::span<std::byte> memory() override { return arena_.bytes(); }

 private:
  static FaultyDeviceOptions DeviceOptions(const BlockDeviceOptions& options) {
    FaultyDeviceOptions device;
    device.file_bytes = {kFileBytes};
    device.seed = 1;
    device.short_transfer_probability = 0.2;
    device.eagain_probability = 0.1;
    device.device = options;
    return device;
  }

  VirtualClock clock_;
  PinnedArena arena_;
  FaultyBlockDevice device_;
};

std::optional<IoMode> ModeOf(HarnessKind kind) {
  switch (kind) {
    case HarnessKind::kUringRegistered:
      return IoMode::kUringRegistered;
    case HarnessKind::kUring:
      return IoMode::kUring;
    case HarnessKind::kPosix:
      return IoMode::kPosix;
    case HarnessKind::kSimulated:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::string HarnessName(HarnessKind kind) {
  switch (kind) {
    case HarnessKind::kUringRegistered:
      return "UringRegistered";
    case HarnessKind::kUring:
      return "Uring";
    case HarnessKind::kPosix:
      return "Posix";
    case HarnessKind::kSimulated:
      break;
  }
  return "Simulated";
}

std::unique_ptr<DeviceHarness> MakeHarness(HarnessKind kind, BlockDeviceOptions options,
                                           std::string* why) {
  if (kind == HarnessKind::kSimulated) return std::make_unique<SimulatedHarness>(options);
  options.mode = ModeOf(kind);
  auto harness = std::make_unique<RealHarness>();
  const Status made = harness->Make(options);
  if (made.ok()) return harness;
  *why = made.message();
  return nullptr;
}

Status Transfer(BlockDevice& device, const IoRequest& request) {
  MAREA_RETURN_IF_ERROR(device.Submit(std::span(&request, 1)));
  std::array completions = {IoCompletion{0, Status::Ok()}};
  while (device.Reap(completions, ReapWait::kUntilOne) == 0) {
  }
  return completions[0].status;
}

}  // namespace marea
