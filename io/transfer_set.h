// What every block device does between a request and its completion: splits it into pieces, keeps
// at most queue_depth of them in flight, resumes short transfers, retries what deserves it, and
// reports each request exactly once.
//
// Pure bookkeeping without system calls, shared by uring_device, posix_device and the simulated
// device of the tests. The owner's loop is: Add, then Next and issue until it returns false; give
// every result to Finish; TakeFinished. Everything is allocated in the constructor; only the text
// of an error allocates later.
//
// Errnos: EINTR and EAGAIN are retried (at most kTransientRetriesMax times in a row), EIO once, a
// short transfer continues where it stopped, rounded down to a page; all else is reported.
//
// Owner and thread rule: owned by one device; only the thread that drives the device calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/block_device.h"
#include "io/device_options.h"
#include "io/fixed_ring.h"

namespace marea {

inline constexpr uint32_t kTransientRetriesMax = 10'000;

// No piece crosses a multiple of this in memory: io_uring registers buffers of at most 1 GiB, and
// with both cut at the same addresses a piece lies within one registered buffer.
inline constexpr uint64_t kAddressCutBytes = kGiB;

class TransferSet {
 public:
  // One transfer to issue: pread or pwrite of `bytes`, whose result goes to Finish with `token`.
  struct Piece {
    uint64_t token;
    IoDirection direction;
    uint32_t file;
    uint64_t offset;
    std::byte* data;
    uint64_t bytes;
  };

  // REQUIRES: ValidateOptions(options).ok(). `paths` are those of the device's files, in order.
  TransferSet(const BlockDeviceOptions& options, std::vector<std::string> paths);

  // REQUIRES: the request obeys the rules of IoRequest, and in_flight() < capacity().
  void Add(const IoRequest& request);

  // Hands out the next piece. False if there is none or queue_depth pieces are out already.
  bool Next(Piece* piece);

  // `result` is what pread, pwrite or a completion queue entry says: bytes, or -errno. The token is
  // dead afterwards, whether the piece is done or will come out of Next again.
  void Finish(uint64_t token, int64_t result);

  // Finishes every request that is not finished with `status` (the device is gone). Pieces that
  // were out are forgotten: their tokens must not be given to Finish any more.
  void FailAll(const Status& status);

  // Moves finished requests out, oldest first; returns how many.
  size_t TakeFinished(std::span<IoCompletion> completions);

  bool has_finished() const { return !finished_.empty(); }
  size_t in_flight() const { return requests_.size() - free_requests_.size(); }
  size_t capacity() const { return requests_.size(); }
  size_t pieces_out() const { return pieces_out_; }
  const IoCounters& counters() const { return counters_; }

 private:
  struct Request {
    IoRequest request;
    uint64_t cut_bytes = 0;         // how much has been cut into pieces
    uint32_t piece_count = 0;       // pieces that exist and are not done
    bool waiting = false;           // in waiting_
    std::optional<Status> failure;  // the first one
  };
  struct PieceState {
    uint32_t request = 0;
    uint32_t generation = 0;  // a token of an earlier use of this slot is a bug, and caught
    uint64_t begin = 0;       // within the request
    uint64_t bytes = 0;
    uint64_t done_bytes = 0;  // multiple of a page until the end
    uint32_t transient_retries = 0;
    bool retried_eio = false;
    bool out = false;  // between Next and Finish
  };

  bool NextAgain(uint32_t* slot);
  bool CutNext(uint32_t* slot);
  void Advance(uint32_t slot, uint64_t bytes);
  void Retry(uint32_t slot, int error_number);
  void FailPiece(uint32_t slot, int error_number, const char* what);
  void RetirePiece(uint32_t slot);
  void MaybeFinishRequest(uint32_t index);

  const uint64_t request_bytes_;
  const std::vector<std::string> paths_;
  std::vector<Request> requests_;
  std::vector<uint32_t> free_requests_;
  FixedRing<uint32_t> waiting_;   // requests with bytes that are not cut yet
  FixedRing<uint32_t> finished_;  // requests to hand back
  std::vector<PieceState> pieces_;
  std::vector<uint32_t> free_pieces_;
  FixedRing<uint32_t> again_;  // pieces to resume or retry, before anything new
  size_t pieces_out_ = 0;
  IoCounters counters_;
};

}  // namespace marea
