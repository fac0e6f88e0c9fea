#include "src/bench/drive_checks.h"

#include <fmt/format.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/units.h"

namespace marea {
namespace {

dev_t DeviceNumber(const std::string& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 ? status.st_dev : 0;
}

ino_t FolderNumber(const std::string& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 ? status.st_ino : 0;
}

// Two streams on one drive would halve each other, and their sum would pass for two drives.
Status CheckApart(const PathFacts& a, const PathFacts& b) {
  const bool same_system = DeviceNumber(a.folder) == DeviceNumber(b.folder);
  if (same_system && FolderNumber(a.folder) == FolderNumber(b.folder)) {
    return Status::InvalidArgument(fmt::format(
        "--nvme {} and --nvme {} are the same folder: name each drive once", a.folder, b.folder));
  }
  const std::string& device = a.details.drive.device;
  const bool same_drive = !device.empty() && device == b.details.drive.device;
  if (!same_system && !same_drive) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("--nvme {} and --nvme {} are both on {}: name one folder a drive", a.folder,
                  b.folder, device.empty() ? "one file system" : "the drive " + device));
}

Status CheckSpace(const PathFacts& facts, uint64_t file_bytes) {
  if (file_bytes <= facts.directory.free_bytes) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("--nvme {} has {} free, and the file of the benchmark takes {}: free space, or "
                  "give a smaller --size",
                  facts.folder, FormatBytes(facts.directory.free_bytes), FormatBytes(file_bytes)));
}

bool Holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// File systems that do more to the bytes than to place them.
void AddFileSystem(const PathFacts& facts, std::vector<std::string>* warnings) {
  const std::string& name = facts.directory.file_system;
  const std::string& options = facts.details.mount_options;
  if (name == "btrfs" || name == "zfs" || name == "bcachefs") {
    warnings->push_back(fmt::format(
        "{} is on {}, which copies on write and may checksum and compress: the figures are the "
        "file system's, not the drive's; ext4 or xfs show the drive",
        facts.folder, name));
  } else if (Holds(options, "compress")) {
    warnings->push_back(fmt::format(
        "{} is mounted with compression ({}): the figures hold its cost", facts.folder, options));
  }
}

void AddLoop(const PathFacts& facts, std::vector<std::string>* warnings) {
  const std::string& file = facts.details.loop_file;
  if (file.empty()) return;
  struct stat status {};
  constexpr int64_t kStatBlockBytes = 512;
  const bool sparse = ::stat(file.c_str(), &status) == 0 &&
                      int64_t{status.st_blocks} * kStatBlockBytes < int64_t{status.st_size};
  warnings->push_back(fmt::format(
      "{} is on {}, a loop device over the {}file {}: the page cache of that file may answer",
      facts.folder, facts.details.drive.device, sparse ? "sparse " : "", file));
}

void AddStacked(const PathFacts& facts, std::vector<std::string>* warnings) {
  const DriveDetails& details = facts.details;
  if (details.members.empty()) return;
  std::string members;
  for (const std::string& member : details.members) {
    members += (members.empty() ? "" : ", ") + member;
  }
  std::string what;
  if (Holds(details.dm_uuid, "VDO-")) what = ", which deduplicates and compresses";
  if (Holds(details.dm_uuid, "CRYPT-")) what = ", which encrypts";
  warnings->push_back(fmt::format("{} is on {}{}, over {}: the figures are the stack's",
                                  facts.folder, details.drive.device, what, members));
}

void AddDrive(const PathFacts& facts, std::vector<std::string>* warnings) {
  const DriveDetails& details = facts.details;
  if (details.drive.device.empty()) {
    warnings->push_back(fmt::format(
        "which drive is below {} ({}) is not known: whether it really moved the bytes was not "
        "checked",
        facts.folder, facts.directory.file_system));
  }
  if (details.virtual_drive) {
    warnings->push_back(
        fmt::format("{} is on {}, a virtual machine's drive: its host may cache, and share it",
                    facts.folder, details.drive.device));
  }
  if (details.drive.rotational && !details.virtual_drive && details.loop_file.empty()) {
    warnings->push_back(
        fmt::format("{} is on {}, a spinning disk", facts.folder, details.drive.device));
  }
  if (details.link.has_value() && details.link_max.has_value() &&
      details.link->bytes_per_second < 0.99 * details.link_max->bytes_per_second) {
    warnings->push_back(fmt::format(
        "{}'s link runs at {} x{} though the drive can do {} x{}: another slot may be faster",
        details.drive.device, details.link->speed, details.link->width, details.link_max->speed,
        details.link_max->width));
  }
}

}  // namespace

std::vector<std::string> StorageWarnings(const PathFacts& facts) {
  std::vector<std::string> warnings = facts.directory.warnings;
  AddFileSystem(facts, &warnings);
  AddLoop(facts, &warnings);
  AddStacked(facts, &warnings);
  AddDrive(facts, &warnings);
  return warnings;
}

Result<std::vector<PathFacts>> CheckPaths(std::span<const std::string> folders,
                                          std::span<const uint64_t> file_bytes) {
  MAREA_CHECK(folders.size() == file_bytes.size(), "a size for each folder");
  std::vector<PathFacts> paths;
  for (const std::string& folder : folders) {
    PathFacts facts;
    facts.folder = folder;
    MAREA_ASSIGN_OR_RETURN(facts.directory, CheckNvmeDirectory(folder));
    if (!facts.directory.direct_io) {
      return Status::InvalidArgument(fmt::format(
          "--nvme {} ({}) refuses direct I/O, so the page cache would be measured: name a folder "
          "on a local drive",
          folder, facts.directory.file_system));
    }
    MAREA_ASSIGN_OR_RETURN(facts.details, ReadDriveDetails(folder));
    for (const PathFacts& other : paths) MAREA_RETURN_IF_ERROR(CheckApart(other, facts));
    MAREA_RETURN_IF_ERROR(CheckSpace(facts, file_bytes[paths.size()]));
    facts.warnings = StorageWarnings(facts);
    paths.push_back(std::move(facts));
  }
  return paths;
}

std::vector<std::string> ExtentWarnings(int fd, const std::string& folder, uint64_t file_bytes) {
  constexpr uint32_t kBatch = 256;
  constexpr size_t kBytes = sizeof(fiemap) + kBatch * sizeof(fiemap_extent);
  alignas(fiemap) static thread_local std::array<std::byte, kBytes> memory;
  uint64_t at = 0;
  uint64_t mapped = 0, unwritten = 0, encoded = 0;
  while (at < file_bytes) {
    memory.fill(std::byte{0});
    auto* const map = reinterpret_cast<fiemap*>(memory.data());
    map->fm_start = at;
    map->fm_length = file_bytes - at;
    map->fm_extent_count = kBatch;
    if (::ioctl(fd, FS_IOC_FIEMAP, map) != 0) return {};  // the file system does not tell
    if (map->fm_mapped_extents == 0) break;
    for (uint32_t i = 0; i < map->fm_mapped_extents; ++i) {
      const fiemap_extent& extent = map->fm_extents[i];
      const uint64_t end = std::min<uint64_t>(extent.fe_logical + extent.fe_length, file_bytes);
      const uint64_t bytes = end - std::max<uint64_t>(extent.fe_logical, at);
      mapped += bytes;
      if ((extent.fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0) unwritten += bytes;
      if ((extent.fe_flags & FIEMAP_EXTENT_ENCODED) != 0) encoded += bytes;
      at = end;
      if ((extent.fe_flags & FIEMAP_EXTENT_LAST) != 0) at = file_bytes;
    }
  }
  std::vector<std::string> warnings;
  const auto mark = [&](uint64_t bytes, const char* what) {
    if (bytes == 0) return;
    warnings.push_back(fmt::format("{}: {} of the file {}, so reads of it need no drive", folder,
                                   FormatBytes(bytes), what));
  };
  mark(unwritten, "is reserved but unwritten");
  mark(encoded, "is compressed or encrypted by the file system");
  mark(file_bytes - std::min(mapped, file_bytes), "is a hole");
  return warnings;
}

std::vector<std::string> TrafficWarnings(const TrafficPair& traffic) {
  constexpr uint64_t kSlackBytes = 16 * kMiB;  // journals, and who else lives on a quiet drive
  std::vector<std::string> warnings;
  const auto compare = [&](const char* what, uint64_t drive, uint64_t own) {
    if (drive > own + own / 20 + kSlackBytes) {
      warnings.push_back(
          fmt::format("others {} {} on {} meanwhile, beside our {}: measure again when it is quiet",
                      what, FormatBytes(drive - own), traffic.device, FormatBytes(own)));
    } else if (drive + kSlackBytes < own - own / 10) {
      warnings.push_back(fmt::format("{} {} only {} of our {}: a cache or a hole answered the rest",
                                     traffic.device, what, FormatBytes(drive), FormatBytes(own)));
    }
  };
  compare("read", traffic.drive.read_bytes, traffic.own.read_bytes);
  compare("wrote", traffic.drive.write_bytes, traffic.own.write_bytes);
  return warnings;
}

// The best second so far, averaged over three, against every later three.
std::string CliffWarning(std::span<const uint64_t> second_bytes) {
  constexpr size_t kAverage = 3;
  constexpr double kFall = 0.6;
  uint64_t best = 0;
  uint64_t before = 0;  // bytes up to the window
  for (size_t i = 0; i + kAverage <= second_bytes.size(); ++i) {
    uint64_t sum = 0;
    for (size_t k = 0; k < kAverage; ++k) sum += second_bytes[i + k];
    // Only what lasts is a cliff: the rest of the run stays low too.
    uint64_t rest = 0;
    for (size_t k = i; k < second_bytes.size(); ++k) rest += second_bytes[k];
    const double rest_mean =
        static_cast<double>(rest) / static_cast<double>(second_bytes.size() - i);
    const double best_mean = static_cast<double>(best) / kAverage;
    const double mean = static_cast<double>(sum) / kAverage;
    if (best > 0 && mean < kFall * best_mean && rest_mean < kFall * best_mean) {
      return fmt::format("writing fell from {} to {} after {}: the end of the drive's fast cache",
                         FormatRate(best_mean), FormatRate(rest_mean), FormatBytes(before));
    }
    best = std::max(best, sum);
    before += second_bytes[i];
  }
  return "";
}

}  // namespace marea
