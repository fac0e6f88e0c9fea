#include "io/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "io/fill_pattern.h"
#include "io/nvme_directory.h"
#include "io/units.h"

namespace marea {
namespace {

constexpr std::chrono::seconds kEndedHolderWait{5};

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

// Who holds the lock on a file, as far as the kernel says.
struct Holder {
  std::string name;   // "process 1234 (marea)"; empty: not known
  bool ended = true;  // it is known to run otherwise
};

Holder ProcessOf(const std::string& pid) {
  Holder holder{.name = "process " + pid, .ended = true};
  std::ifstream status("/proc/" + pid + "/status");
  std::string key, value, rest;
  while (status >> key >> value && std::getline(status, rest)) {
    if (key == "Name:") holder.name += " (" + value + ")";
    if (key == "State:") holder.ended = value == "Z" || value == "X";
  }
  return holder;
}

// From the kernel's table of locks, whose lines are
// "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF".
Holder HolderOf(const struct stat& file) {
  const std::string wanted =
      fmt::format("{:02x}:{:02x}:{}", major(file.st_dev), minor(file.st_dev), file.st_ino);
  std::ifstream locks("/proc/locks");
  std::string number, kind, advisory, access, pid, inode, rest;
  while (locks >> number >> kind >> advisory >> access >> pid >> inode &&
         std::getline(locks, rest)) {
    if (kind == "FLOCK" && inode == wanted) return ProcessOf(pid);
  }
  return {};
}

// Takes the lock for as long as the descriptor lives. False in `*current` if the name was given to
// another file between open and lock.
//
// A process that was killed holds the lock until the kernel has finished its transfers, some of
// which may be writes to this very file: that is waited for.
Status Lock(int fd, const std::string& path, bool* current) {
  struct stat opened {};
  struct stat named {};
  if (::fstat(fd, &opened) != 0) return Status::Io(path, errno);
  const auto deadline = std::chrono::steady_clock::now() + kEndedHolderWait;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Status::Io(path + ": lock", errno);
    const Holder holder = HolderOf(opened);
    if (!holder.ended || std::chrono::steady_clock::now() > deadline) {
      return Status::Busy(
          fmt::format("{} is in use by {}: wait for it, stop it, or name another NVMe path", path,
                      holder.name.empty()
                          ? fmt::format("another process (`lslocks` or `fuser {}` names it)", path)
                          : holder.name));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  *current = ::stat(path.c_str(), &named) == 0 && named.st_dev == opened.st_dev &&
             named.st_ino == opened.st_ino;
  return Status::Ok();
}

struct OpenedFile {
  UniqueFd fd;
  bool created = false;
};

// Opens and locks `path`. `create_flags` is O_CREAT or 0.
Result<OpenedFile> OpenLocked(const std::string& path, int create_flags, bool direct) {
  constexpr int kAttemptsMax = 100;  // each lost to a process that replaced the file
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (direct ? O_DIRECT : 0);
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    OpenedFile file;
    if (create_flags != 0) {
      file.fd = UniqueFd(::open(path.c_str(), flags | create_flags | O_EXCL, 0600));
      file.created = file.fd.valid();
    }
    if (!file.fd.valid()) file.fd = UniqueFd(::open(path.c_str(), flags));
    if (!file.fd.valid()) {
      if (errno == ENOENT && create_flags != 0) continue;
      if (errno == EINVAL && direct) {
        return Status::Unavailable(
            fmt::format("{}: the file system refuses direct I/O (O_DIRECT); name a folder on a "
                        "local drive",
                        path));
      }
      return Status::Io(path + ": open", errno);
    }
    bool current = false;
    MAREA_RETURN_IF_ERROR(Lock(file.fd.get(), path, &current));
    if (current) return file;
  }
  return Status::Busy(path + " is replaced again and again by another process");
}

// What stands at `path`: nothing, or a regular file. `allocated_bytes` are already its own.
Status CheckTarget(const std::string& path, uint64_t* allocated_bytes) {
  struct stat status {};
  *allocated_bytes = 0;
  if (::lstat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? Status::Ok() : Status::Io(path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return Status::InvalidArgument(path + " is not a regular file: remove it or name another path");
  }
  constexpr uint64_t kStatBlockBytes = 512;
  *allocated_bytes = static_cast<uint64_t>(status.st_blocks) * kStatBlockBytes;
  return Status::Ok();
}

Status CheckSpace(const DirectoryReport& folder, const std::string& path, uint64_t bytes,
                  uint64_t allocated_bytes) {
  const uint64_t needed_bytes = bytes - std::min(bytes, allocated_bytes);
  if (needed_bytes <= folder.free_bytes) return Status::Ok();
  return Status::DoesNotFit(fmt::format(
      "{} needs {} ({} bytes) but {} has {} free ({} bytes): free space or name another NVMe path",
      path, FormatBytes(needed_bytes), needed_bytes, folder.path, FormatBytes(folder.free_bytes),
      folder.free_bytes));
}

Status WriteAll(int fd, const std::string& path, uint64_t bytes,
                const std::function<Status(uint64_t, uint64_t)>& progress) {
  constexpr uint64_t kWriteBytes = 8 * kMiB;
  const uint64_t buffer_bytes = std::min(bytes, kWriteBytes);
  const std::unique_ptr<void, void (*)(void*)> buffer(std::aligned_alloc(kPageBytes, buffer_bytes),
                                                      std::free);
  if (buffer == nullptr) {
    return Status::Failed(
        fmt::format("{}: there is no memory for a buffer of {} bytes", path, buffer_bytes));
  }
  FillPattern(static_cast<std::byte*>(buffer.get()), buffer_bytes);
  for (uint64_t offset = 0; offset < bytes;) {
    const uint64_t count = std::min(buffer_bytes, bytes - offset);
    const ssize_t written = ::pwrite(fd, buffer.get(), count, static_cast<off_t>(offset));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < static_cast<ssize_t>(kPageBytes)) {
      return Status::Io(fmt::format("{}: write of {} bytes at offset {}", path, count, offset),
                        written < 0 ? errno : ENOSPC);
    }
    offset += static_cast<uint64_t>(written) / kPageBytes * kPageBytes;
    if (progress) MAREA_RETURN_IF_ERROR(progress(offset, bytes));
  }
  return Status::Ok();
}

Status Preallocate(int fd, const std::string& path, uint64_t bytes,
                   const DataFileOptions& options) {
  const auto size = static_cast<off_t>(bytes);
  if (::ftruncate(fd, size) != 0) {
    return Status::Io(fmt::format("{}: setting its size to {} bytes", path, bytes), errno);
  }
  int result = 0;
  while ((result = ::fallocate(fd, 0, 0, size)) != 0 && errno == EINTR) {
  }
  // Some file systems cannot reserve; writing the file whole does it too.
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    return Status::Io(fmt::format("{}: preallocating {} bytes", path, bytes), errno);
  }
  if (options.first_write == FirstWrite::kInCreate) {
    MAREA_RETURN_IF_ERROR(WriteAll(fd, path, bytes, options.progress));
  }
  if (::fsync(fd) != 0) return Status::Io(path + ": fsync", errno);
  const UniqueFd folder(::open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || ::fsync(folder.get()) != 0) {
    return Status::Io(FolderOf(path) + ": fsync", errno);
  }
  return Status::Ok();
}

Result<bool> DecideDirect(const DirectoryReport& folder, const DataFileOptions& options) {
  if (folder.direct_io) return true;
  if (options.buffered == BufferedIo::kAllow) return false;
  return Status::Unavailable(fmt::format(
      "{} ({}) refuses direct I/O, so its bytes would pass through the page cache: name "
      "a folder on a local drive",
      folder.path, folder.file_system));
}

}  // namespace

DataFile::~DataFile() {
  if (fd_.valid()) ::flock(fd_.get(), LOCK_UN);
}

DataFile& DataFile::operator=(DataFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  std::swap(direct_, other.direct_);
  return *this;
}

Result<DataFile> DataFile::Create(const std::string& path, uint64_t bytes,
                                  const DataFileOptions& options) {
  MAREA_CHECK(bytes > 0 && bytes % kPageBytes == 0, "a data file holds whole pages");
  if (bytes > static_cast<uint64_t>(INT64_MAX)) {
    return Status::InvalidArgument(fmt::format("{}: {} bytes exceed any file", path, bytes));
  }
  MAREA_ASSIGN_OR_RETURN(const DirectoryReport folder, CheckNvmeDirectory(FolderOf(path)));
  MAREA_ASSIGN_OR_RETURN(const bool direct, DecideDirect(folder, options));
  uint64_t allocated_bytes = 0;
  MAREA_RETURN_IF_ERROR(CheckTarget(path, &allocated_bytes));
  MAREA_RETURN_IF_ERROR(CheckSpace(folder, path, bytes, allocated_bytes));
  MAREA_ASSIGN_OR_RETURN(OpenedFile file, OpenLocked(path, O_CREAT, direct));
  Status status = Preallocate(file.fd.get(), path, bytes, options);
  if (!status.ok()) {
    if (file.created) ::unlink(path.c_str());
    return status;
  }
  return DataFile(std::move(file.fd), path, bytes, direct);
}

Result<DataFile> DataFile::Open(const std::string& path, const DataFileOptions& options) {
  uint64_t allocated_bytes = 0;
  MAREA_RETURN_IF_ERROR(CheckTarget(path, &allocated_bytes));
  MAREA_ASSIGN_OR_RETURN(const DirectoryReport folder, CheckNvmeDirectory(FolderOf(path)));
  MAREA_ASSIGN_OR_RETURN(const bool direct, DecideDirect(folder, options));
  MAREA_ASSIGN_OR_RETURN(OpenedFile file, OpenLocked(path, 0, direct));
  struct stat status {};
  if (::fstat(file.fd.get(), &status) != 0) return Status::Io(path, errno);
  return DataFile(std::move(file.fd), path, static_cast<uint64_t>(status.st_size), direct);
}

Status DataFile::Sync() {
  return ::fdatasync(fd_.get()) == 0 ? Status::Ok() : Status::Io(path_ + ": fdatasync", errno);
}

Status DataFile::Unlink() {
  return ::unlink(path_.c_str()) == 0 ? Status::Ok() : Status::Io(path_ + ": unlink", errno);
}

}  // namespace marea
