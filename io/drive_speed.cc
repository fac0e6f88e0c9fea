#include "io/drive_speed.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <thread>

#include "io/block_device_factory.h"
#include "io/check.h"
#include "io/fill_pattern.h"
#include "io/region_stream.h"
#include "io/steady_seconds.h"
#include "io/units.h"
#include "io/unnamed_file.h"

namespace marea {
namespace {

// More in flight on a drive than this tells nothing new of its speed.
constexpr uint64_t kMemoryBytesMax = 32 * kMiB;
constexpr uint64_t kAllMemoryBytesMax = 64 * kMiB;  // of all drives, unless a request is larger
constexpr uint64_t kRequestBytesMax = 4 * kMiB;

enum Phase { kWrite, kRead, kPhaseCount };

// What the paths share. Each path counts itself in a phase once it has moved enough, and streams on
// until all have. A path that fails leaves, and the others do not wait for it.
class Pace {
 public:
  explicit Pace(size_t path_count)
      : gate_(static_cast<ptrdiff_t>(path_count)), running_(path_count) {}

  void Meet() { gate_.arrive_and_wait(); }
  void Leave() {
    --running_;
    gate_.arrive_and_drop();
  }
  void Satisfy(Phase phase) { ++satisfied_[phase]; }
  bool AllSatisfied(Phase phase) const { return satisfied_[phase] >= running_; }

 private:
  std::barrier<> gate_;
  std::atomic<size_t> running_;
  std::array<std::atomic<size_t>, kPhaseCount> satisfied_{};
};

Result<UniqueFd> OpenRegion(const std::string& folder, uint64_t bytes) {
  int error_number = 0;
  UniqueFd fd = OpenUnnamedFile(folder, &error_number);
  if (error_number == EINVAL || error_number == EOPNOTSUPP) {
    return Status::Unavailable(
        fmt::format("{}: the file system refuses direct I/O (O_DIRECT); name a folder on a local "
                    "drive",
                    folder));
  }
  if (!fd.valid()) return Status::Io(folder + ": a file to measure its speed", error_number);
  int result = 0;
  while ((result = ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes))) != 0 && errno == EINTR) {
  }
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    return Status::Io(fmt::format("{}: {} to measure its speed", folder, FormatBytes(bytes)),
                      errno);
  }
  return fd;
}

Result<DriveSpeed> MeasureOne(const DriveFolder& folder, const DriveSpeedOptions& options,
                              uint64_t memory_bytes_max, Pace& pace) {
  const uint64_t region_bytes =
      std::min(options.region_bytes, folder.bytes_max) / kPageBytes * kPageBytes;
  MAREA_CHECK(region_bytes > 0, "a drive's speed is measured over a page at least");
  const uint64_t request_bytes =
      std::min({options.device.request_bytes, kRequestBytesMax, region_bytes});
  const uint64_t slots = std::clamp<uint64_t>(
      options.device.queue_depth, 1, std::min(region_bytes, memory_bytes_max) / request_bytes);
  const std::unique_ptr<void, void (*)(void*)> memory(
      std::aligned_alloc(kPageBytes, slots * request_bytes), std::free);
  if (memory == nullptr) return Status::Failed(folder.path + ": no memory to measure its speed");
  const std::span<std::byte> bytes(static_cast<std::byte*>(memory.get()), slots * request_bytes);
  FillPattern(bytes.data(), bytes.size());
  MAREA_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegion(folder.path, region_bytes));
  const std::array files = {DeviceFile{fd.get(), folder.path + " (measuring its speed)"}};
  const std::array buffers = {bytes};
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<BlockDevice> device,
                         MakeBlockDevice(files, buffers, options.device));
  RegionStream stream(*device, bytes, region_bytes, request_bytes, SteadySeconds);
  // A round at least, so that a slow drive's rate is that of many requests.
  const auto late = [&](const RegionStream::Moved& moved) {
    return moved.seconds >= options.seconds_max && moved.bytes >= stream.round_bytes();
  };
  const auto until_all = [&](Phase phase) {
    return [&, phase, said = false](const RegionStream::Moved& moved) mutable {
      const bool mine = moved.bytes >= options.moved_bytes || late(moved);
      if (mine && !said) pace.Satisfy(phase);
      said = said || mine;
      return mine && (late(moved) || pace.AllSatisfied(phase));
    };
  };
  pace.Meet();
  MAREA_RETURN_IF_ERROR(stream.Fill(late));
  pace.Meet();
  MAREA_ASSIGN_OR_RETURN(const auto written, stream.Run(IoDirection::kWrite, until_all(kWrite)));
  pace.Meet();
  MAREA_ASSIGN_OR_RETURN(const auto read, stream.Run(IoDirection::kRead, until_all(kRead)));
  constexpr double kRateMin = 1;  // a clock that stood still must not divide by zero
  return DriveSpeed{std::max(read.rate(), kRateMin), std::max(written.rate(), kRateMin)};
}

}  // namespace

Result<std::vector<DriveSpeed>> MeasureDrives(std::span<const DriveFolder> folders,
                                              const DriveSpeedOptions& options) {
  MAREA_RETURN_IF_ERROR(ValidateOptions(options.device));
  Pace pace(folders.size());
  const uint64_t memory_bytes_max = std::clamp(
      kAllMemoryBytesMax / std::max<size_t>(1, folders.size()), kRequestBytesMax, kMemoryBytesMax);
  std::vector<Result<DriveSpeed>> measured(folders.size(), Status::Failed("not measured"));
  std::vector<std::thread> threads;
  const auto measure = [&](size_t index) {
    measured[index] = MeasureOne(folders[index], options, memory_bytes_max, pace);
    if (!measured[index].ok()) pace.Leave();
  };
  for (size_t index = 0; index < folders.size(); ++index) {
    try {
      threads.emplace_back(measure, index);
    } catch (const std::system_error& error) {
      measured[index] = Status::Failed(fmt::format("{}: no thread to measure its speed ({})",
                                                   folders[index].path, error.what()));
      pace.Leave();
    }
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<DriveSpeed> speeds;
  for (const Result<DriveSpeed>& result : measured) {
    MAREA_RETURN_IF_ERROR(result.status());
    speeds.push_back(result.value());
  }
  return speeds;
}

}  // namespace marea
