// Asynchronous block transfers on a set of open files: the one interface through which bytes reach
// and leave a drive.
//
// Owner and thread rule: one thread drives one device (Submit and Reap); only `Wake` may be called
// from another. Implementations: uring_device (io_uring, registered or not), posix_device (a pool
// of threads with pread/pwrite), and the simulated device of the tests. The file list is fixed when
// the device is made; file k of a request is the k-th file of that list. Files are opened and owned
// by the caller (data_file.h) and outlive the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/status.h"

namespace marea {

enum class IoDirection : uint8_t { kRead, kWrite };

// How bytes travel, in order of preference.
enum class IoMode : uint8_t {
  kUringRegistered,  // io_uring with registered buffers
  kUring,            // io_uring; buffers are pinned per request (memlock limit too small)
  kPosix,            // threads with pread/pwrite (io_uring forbidden or missing)
  kSimulated,
};

const char* IoModeName(IoMode mode);

// The mode in use, why it is not a better one, what that costs, and the line that would lift it.
// All three texts are empty for the best mode.
struct IoModeReport {
  IoMode mode;
  std::string reason;
  std::string remedy;
  std::string cost;
};

// What a device has moved since it was made. Bytes count once, when the kernel reported them.
struct IoCounters {
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
  uint64_t short_transfers = 0;  // resumed
  uint64_t retries = 0;          // after EINTR, EAGAIN or the first EIO
  uint64_t failures = 0;         // requests that completed with an error
};

// REQUIRES: offset, bytes and the address of data are multiples of kPageBytes, and bytes > 0.
// `data` stays valid and untouched until the request's completion has been reaped.
struct IoRequest {
  IoDirection direction;
  uint32_t file;
  uint64_t offset;
  std::byte* data;
  uint64_t bytes;
  uint64_t tag;  // the caller's; comes back in the completion
};

// Each request completes exactly once: Ok when every byte was transferred, otherwise a Status with
// path, offset, bytes and errno. Short transfers are resumed and EINTR/EAGAIN retried inside the
// device; EIO is retried once.
struct IoCompletion {
  uint64_t tag;
  Status status;
};

enum class ReapWait : uint8_t { kNo, kUntilOne };

class BlockDevice {
 public:
  virtual ~BlockDevice() = default;

  // Takes every request, or none and says why (a request that breaks the rules above is a
  // programmer error). Never blocks: what exceeds the queue depth waits in a queue of fixed
  // capacity, and REQUIRES in_flight() + requests.size() <= capacity().
  virtual Status Submit(std::span<const IoRequest> requests) = 0;

  // Appends up to completions.size() finished requests; returns how many. With kUntilOne, blocks
  // until at least one request finishes or Wake is called (then possibly 0), unless nothing is in
  // flight, in which case it blocks until Wake.
  virtual size_t Reap(std::span<IoCompletion> completions, ReapWait wait) = 0;

  // Makes a blocked (or the next blocking) Reap return. Any thread.
  virtual void Wake() = 0;

  virtual size_t in_flight() const = 0;  // submitted, not yet reaped
  virtual size_t capacity() const = 0;   // the most that may be in flight
  virtual const IoModeReport& mode() const = 0;
  virtual const IoCounters& counters() const = 0;  // the driving thread's
};

}  // namespace marea
