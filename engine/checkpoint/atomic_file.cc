#include "engine/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "io/units.h"

namespace marea {
namespace {

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().native();
  return folder.empty() ? "." : folder;
}

// Reserves the space where the file system can. Where it cannot, writing finds out.
Status Reserve(int fd, const std::string& path, uint64_t bytes) {
  if (bytes == 0) return Status::Ok();
  int error;
  do {
    error = fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0 || error == EOPNOTSUPP || error == ENOSYS) return Status::Ok();
  return Status::Io(fmt::format("cannot reserve {} for {}", FormatBytes(bytes), path), error);
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

Result<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path,
                                                       uint64_t size_bytes) {
  const std::string temporary = path + ".partial";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return Status::Io(fmt::format("cannot create {}", temporary), errno);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd);
    if (error == EWOULDBLOCK) {
      return Status::Busy(fmt::format("{} is being written by another process", temporary));
    }
    return Status::Io(fmt::format("cannot lock {}", temporary), error);
  }
  // From here on the temporary is ours to remove.
  std::unique_ptr<AtomicFile> file(new AtomicFile(path, temporary, fd));
  if (ftruncate(fd, 0) != 0) return Status::Io(fmt::format("cannot empty {}", temporary), errno);
  MAREA_RETURN_IF_ERROR(Reserve(fd, path, size_bytes));
  return file;
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  unlink(temporary_.c_str());  // before the lock goes, so that nobody else's file is removed
  close(fd_);
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  MAREA_CHECK(fd_ >= 0 && !failed_, "a write to a file that failed or was committed");
  // Linux moves at most 2 GiB less a page in one call.
  constexpr uint64_t kLargest = kGiB;
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), std::min<uint64_t>(bytes.size(), kLargest));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      failed_ = true;
      return Status::Io(fmt::format("cannot write {} at offset {} ({} bytes)", path_,
                                    bytes_written_, bytes.size()),
                        written < 0 ? errno : ENOSPC);
    }
    bytes_written_ += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status::Ok();
}

Status AtomicFile::Commit() {
  MAREA_CHECK(fd_ >= 0 && !failed_, "a commit of a file that failed or was committed");
  // More may have been reserved than was written.
  if (ftruncate(fd_, static_cast<off_t>(bytes_written_)) != 0) {
    return Status::Io(fmt::format("cannot cut {} to {} bytes", temporary_, bytes_written_), errno);
  }
  if (fsync(fd_) != 0) return Status::Io(fmt::format("cannot sync {}", temporary_), errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Status::Io(fmt::format("cannot rename {} to {}", temporary_, path_), errno);
  }
  close(std::exchange(fd_, -1));
  return SyncFolder(FolderOf(path_));
}

Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Status::Io(fmt::format("cannot open folder {}", folder), errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // Some network file systems cannot sync a folder; the rename is as durable as they make it.
  if (error == 0 || error == EINVAL) return Status::Ok();
  return Status::Io(fmt::format("cannot sync folder {}", folder), error);
}

Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes) {
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                         AtomicFile::Create(path, bytes.size()));
  MAREA_RETURN_IF_ERROR(file->Write(bytes));
  return file->Commit();
}

}  // namespace marea
