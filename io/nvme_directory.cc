#include "io/nvme_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "io/drive_info.h"
#include "io/unique_fd.h"
#include "io/units.h"
#include "io/unnamed_file.h"

namespace marea {
namespace {

struct KnownFileSystem {
  uint64_t magic;
  const char* name;
};

constexpr uint64_t kTmpfs = 0x01021994;
constexpr uint64_t kRamfs = 0x858458f6;
constexpr uint64_t kHugetlbfs = 0x958458f6;
constexpr uint64_t kOverlayfs = 0x794c7630;
constexpr uint64_t kNfs = 0x6969;
constexpr uint64_t kCifs = 0xff534d42;
constexpr uint64_t kSmb2 = 0xfe534d42;
constexpr uint64_t k9p = 0x01021997;
constexpr uint64_t kFuse = 0x65735546;
constexpr std::array kKnown = {
    KnownFileSystem{0xef53, "ext4"},
    KnownFileSystem{0x58465342, "xfs"},
    KnownFileSystem{0x9123683e, "btrfs"},
    KnownFileSystem{0x2fc12fc1, "zfs"},
    KnownFileSystem{0xf2f52010, "f2fs"},
    KnownFileSystem{0xca451a4e, "bcachefs"},
    KnownFileSystem{kTmpfs, "tmpfs"},
    KnownFileSystem{kRamfs, "ramfs"},
    KnownFileSystem{kHugetlbfs, "hugetlbfs"},
    KnownFileSystem{kOverlayfs, "overlayfs"},
    KnownFileSystem{kNfs, "nfs"},
    KnownFileSystem{kCifs, "cifs"},
    KnownFileSystem{kSmb2, "smb"},
    KnownFileSystem{k9p, "9p"},
    KnownFileSystem{kFuse, "fuse"},
};

bool IsNetwork(uint64_t magic) {
  return magic == kNfs || magic == kCifs || magic == kSmb2 || magic == k9p || magic == kFuse;
}

Status BadDirectory(const std::string& path, const std::string& why, const std::string& remedy) {
  return Status::InvalidArgument(fmt::format("the NVMe path {} {}: {}", path, why, remedy));
}

Status CheckFolder(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return BadDirectory(path, "does not exist", "create it or name another");
    if (errno == ENOTDIR) {
      return BadDirectory(path, "leads through a file", "name a folder");
    }
    return BadDirectory(path, fmt::format("cannot be used ({})", std::strerror(errno)),
                        "name a folder that this user can reach");
  }
  if (!S_ISDIR(status.st_mode)) return BadDirectory(path, "is not a folder", "name a folder");
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return Status::Ok();
  if (errno == EROFS) {
    return BadDirectory(path, "is on a file system mounted read-only",
                        "remount it for writing or name another");
  }
  return BadDirectory(path, fmt::format("is not writable ({})", std::strerror(errno)),
                      "change its permissions or name another");
}

// statx with STATX_DIOALIGN (Linux 6.1), by numbers: older C libraries know neither. False if the
// kernel does not tell.
bool AskAlignment(int fd, uint32_t* alignment_bytes) {
  constexpr unsigned kStatxDioAlign = 0x2000;
  constexpr size_t kMemoryAlignAt = 0x98;
  constexpr size_t kOffsetAlignAt = 0x9c;
  alignas(8) std::array<std::byte, 256> answer{};
  if (::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxDioAlign, answer.data()) != 0) return false;
  uint32_t mask = 0;
  uint32_t memory_align = 0;
  uint32_t offset_align = 0;
  std::memcpy(&mask, answer.data(), sizeof(mask));
  std::memcpy(&memory_align, answer.data() + kMemoryAlignAt, sizeof(memory_align));
  std::memcpy(&offset_align, answer.data() + kOffsetAlignAt, sizeof(offset_align));
  if ((mask & kStatxDioAlign) == 0 || offset_align == 0) return false;
  *alignment_bytes = std::max(memory_align, offset_align);
  return true;
}

// The smallest unit that a direct write takes, tried up to 64 KiB; 0 if none works.
uint32_t ProbeAlignment(int fd, int* error_number) {
  constexpr uint32_t kLargest = 64 * 1024;
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(kLargest, 2 * kLargest),
                                                      std::free);
  std::memset(memory.get(), 0, 2 * kLargest);
  for (uint32_t bytes = 512; bytes <= kLargest; bytes *= 2) {
    char* const data = static_cast<char*>(memory.get()) + bytes;  // aligned to `bytes`, no more
    if (::pwrite(fd, data, bytes, bytes) == static_cast<ssize_t>(bytes)) return bytes;
    *error_number = errno;
    if (errno != EINVAL) return 0;
  }
  return 0;
}

Status TryDirectIo(DirectoryReport* report) {
  int error_number = 0;
  const UniqueFd fd = OpenUnnamedFile(report->path, &error_number);
  if (!fd.valid() && (error_number == EINVAL || error_number == EOPNOTSUPP)) {
    return Status::Ok();  // O_DIRECT refused: direct_io stays false
  }
  if (!fd.valid()) {
    return BadDirectory(report->path,
                        fmt::format("takes no file ({})", std::strerror(error_number)),
                        "free space or name another folder");
  }
  report->alignment_source = "statx";
  if (!AskAlignment(fd.get(), &report->alignment_bytes)) {
    report->alignment_source = "probe";
    report->alignment_bytes = ProbeAlignment(fd.get(), &error_number);
    if (report->alignment_bytes == 0 && error_number == ENOSPC) {
      return BadDirectory(report->path, "is on a full file system", "free space or name another");
    }
  }
  report->direct_io = report->alignment_bytes != 0;
  if (report->alignment_bytes > kPageBytes) {
    return BadDirectory(
        report->path,
        fmt::format("takes direct I/O only in units of {} bytes", report->alignment_bytes),
        fmt::format("name a folder on a drive with blocks of at most {} bytes", kPageBytes));
  }
  return Status::Ok();
}

void AddWarnings(uint64_t magic, DirectoryReport* report) {
  if (magic == kOverlayfs) {
    report->warnings.push_back(fmt::format(
        "{} is on overlayfs, a container's layered file system: name a volume or a bind "
        "mount to reach the drive itself",
        report->path));
  }
  if (IsNetwork(magic)) {
    report->warnings.push_back(fmt::format(
        "{} is on {}, which is not a local drive: expect its speed and its failures to be those of "
        "what serves it",
        report->path, report->file_system));
  }
  const Result<DriveInfo> drive = FindDrive(report->path);
  if (!drive.ok()) return;
  if (drive.value().in_memory) {
    report->warnings.push_back(fmt::format("{} is on {}, a drive made of memory: it saves none",
                                           report->path, drive.value().device));
  }
  if (!report->direct_io) {
    report->warnings.push_back(
        fmt::format("{} ({}) refuses direct I/O", report->path, report->file_system));
  }
}

}  // namespace

std::string FileSystemName(uint64_t magic) {
  for (const KnownFileSystem& known : kKnown) {
    if (known.magic == magic) return known.name;
  }
  return fmt::format("{:#x}", magic);
}

bool LivesInMemory(uint64_t magic) {
  return magic == kTmpfs || magic == kRamfs || magic == kHugetlbfs;
}

Result<DirectoryReport> CheckNvmeDirectory(std::string_view path) {
  if (path.empty()) {
    return Status::InvalidArgument("the NVMe path is empty: name a folder on an NVMe drive");
  }
  DirectoryReport report;
  report.path = path;
  MAREA_RETURN_IF_ERROR(CheckFolder(report.path));
  struct statfs file_system {};
  if (::statfs(report.path.c_str(), &file_system) != 0) return Status::Io(report.path, errno);
  const uint64_t magic = static_cast<uint32_t>(file_system.f_type);
  report.file_system = FileSystemName(magic);
  if (LivesInMemory(magic)) {
    return BadDirectory(
        report.path, fmt::format("is on {}, which is memory and not a drive", report.file_system),
        "name a folder on a drive");
  }
  const auto unit = static_cast<uint64_t>(file_system.f_frsize);
  report.free_bytes = file_system.f_bavail * unit;
  report.total_bytes = file_system.f_blocks * unit;
  MAREA_RETURN_IF_ERROR(TryDirectIo(&report));
  AddWarnings(magic, &report);
  return report;
}

}  // namespace marea
