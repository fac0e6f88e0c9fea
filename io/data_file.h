// One preallocated file on NVMe, opened for direct I/O and locked: where a tier's bytes live.
//
// The file is written once, whole, before use (by Create, unless its owner takes that over):
// unwritten extents read back at memory speed and make every figure lie, and a full drive shows
// before training instead of in it. An exclusive flock
// keeps a second run away for as long as the object lives. The lock of a process that was killed
// stays until the kernel has finished its transfers: Create and Open wait up to 5 s for it, unless
// the kernel names a holder that runs.
//
// Move-only, owned by the store that uses it; not thread-safe, but fd() may be used from any
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "io/status.h"
#include "io/unique_fd.h"

namespace marea {

// May a file be used through the page cache where its file system refuses O_DIRECT? Then every
// figure measured on it is a figure of the page cache too; DataFile::direct() tells.
enum class BufferedIo : uint8_t { kRefuse, kAllow };

// Who writes the file once before it is used. kByOwner: space is reserved, but until the owner has
// written every byte, what it reads may come from no drive.
enum class FirstWrite : uint8_t { kInCreate, kByOwner };

struct DataFileOptions {
  BufferedIo buffered = BufferedIo::kRefuse;
  FirstWrite first_write = FirstWrite::kInCreate;
  // Called while the file is written, with bytes done and in all. An error stops the creation and
  // is returned; use it to show progress and to cancel.
  std::function<Status(uint64_t, uint64_t)> progress;
};

class DataFile {
 public:
  // Makes the file at `path` exactly `bytes` long, preallocates and writes all of it, syncs it, and
  // keeps it open and locked. What an existing file held is lost. Blocks for as long as the drive
  // takes to write `bytes`; every check comes before the first byte.
  //
  // REQUIRES: bytes is a multiple of kPageBytes and > 0. Fails with Busy (another process holds it,
  // named where the kernel tells), DoesNotFit (needed and free bytes), InvalidArgument (the folder
  // is missing or unfit, see CheckNvmeDirectory), or Io. On failure a file that did not exist
  // before is removed again.
  static Result<DataFile> Create(const std::string& path, uint64_t bytes,
                                 const DataFileOptions& options = {});

  // Opens and locks an existing file, leaving its content. Does not block on the drive.
  static Result<DataFile> Open(const std::string& path, const DataFileOptions& options = {});

  DataFile(DataFile&&) = default;
  DataFile& operator=(DataFile&& other) noexcept;
  // Gives the lock back at once, even where a ring that is being torn down holds the file open for
  // some milliseconds more.
  ~DataFile();

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  bool direct() const { return direct_; }

  // fdatasync: blocks until what was written is on the drive.
  Status Sync();
  // Removes the name; the open file stays usable until it is closed.
  Status Unlink();

 private:
  DataFile(UniqueFd fd, std::string path, uint64_t bytes, bool direct)
      : fd_(std::move(fd)), path_(std::move(path)), bytes_(bytes), direct_(direct) {}

  UniqueFd fd_;
  std::string path_;
  uint64_t bytes_;
  bool direct_;
};

}  // namespace marea
