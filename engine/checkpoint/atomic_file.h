// A file that is written whole or not at all.
//
// Bytes go to `<path>.partial` in the same folder; Commit syncs it, renames it over `path`, and
// syncs the folder. Until then, and after any failure, `path` is what it was before. A `.partial`
// left by a process that died is taken over; one that a living process writes is Busy (flock).
//
// Owner: the caller. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/status.h"

namespace marea {

class AtomicFile {
 public:
  // Opens the temporary and reserves `size_bytes` (0: unknown), so that a full disk is reported
  // before anything is written. Io names the path and the bytes. Blocks.
  static Result<std::unique_ptr<AtomicFile>> Create(const std::string& path, uint64_t size_bytes);
  // Removes the temporary unless committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. On failure the file can only be dropped. Blocks.
  Status Write(std::span<const std::byte> bytes);
  // REQUIRES: every Write returned Ok, and Commit was not called. On failure `path` is unchanged.
  // Blocks until the bytes and the name are on the device.
  Status Commit();

  uint64_t bytes_written() const { return bytes_written_; }

 private:
  AtomicFile(std::string path, std::string temporary, int fd);

  std::string path_;
  std::string temporary_;
  int fd_;
  uint64_t bytes_written_ = 0;
  bool failed_ = false;
};

// Makes the names in `folder` durable. Io names the folder. Blocks.
Status SyncFolder(const std::string& folder);

// AtomicFile in one call. Blocks.
Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace marea
