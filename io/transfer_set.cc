#include "io/transfer_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace marea {
namespace {

constexpr uint64_t MakeToken(uint32_t slot, uint32_t generation) {
  return uint64_t{generation} << 32 | slot;
}
constexpr uint32_t SlotOf(uint64_t token) {
  return static_cast<uint32_t>(token);
}
constexpr uint32_t GenerationOf(uint64_t token) {
  return static_cast<uint32_t>(token >> 32);
}

std::string DescribeTransfer(const std::string& path, IoDirection direction, uint64_t offset,
                             uint64_t bytes) {
  return fmt::format("{}: {} of {} bytes at offset {}", path,
                     direction == IoDirection::kRead ? "read" : "write", bytes, offset);
}

}  // namespace

TransferSet::TransferSet(const BlockDeviceOptions& options, std::vector<std::string> paths)
    : request_bytes_(options.request_bytes),
      paths_(std::move(paths)),
      requests_(options.capacity),
      waiting_(options.capacity),
      finished_(options.capacity),
      pieces_(options.queue_depth),
      again_(options.queue_depth) {
  MAREA_CHECK(ValidateOptions(options).ok(), "options were not validated");
  free_requests_.reserve(requests_.size());
  for (size_t i = requests_.size(); i-- > 0;) free_requests_.push_back(static_cast<uint32_t>(i));
  free_pieces_.reserve(pieces_.size());
  for (size_t i = pieces_.size(); i-- > 0;) free_pieces_.push_back(static_cast<uint32_t>(i));
}

void TransferSet::Add(const IoRequest& request) {
  MAREA_CHECK(request.bytes > 0 && request.bytes % kPageBytes == 0, "bytes are not whole pages");
  MAREA_CHECK(request.offset % kPageBytes == 0, "the offset is not page aligned");
  MAREA_CHECK(request.offset + request.bytes > request.offset, "the range overflows");
  MAREA_CHECK(reinterpret_cast<uintptr_t>(request.data) % kPageBytes == 0,
              "the memory is not page aligned");
  MAREA_CHECK(request.data != nullptr, "there is no memory");
  MAREA_CHECK(request.file < paths_.size(), "no such file");
  MAREA_CHECK(!free_requests_.empty(), "more requests than the device's capacity");
  const uint32_t index = free_requests_.back();
  free_requests_.pop_back();
  requests_[index].request = request;
  requests_[index].cut_bytes = 0;
  requests_[index].piece_count = 0;
  requests_[index].waiting = true;
  requests_[index].failure.reset();
  waiting_.Push(index);
}

bool TransferSet::CutNext(uint32_t* slot) {
  if (free_pieces_.empty()) return false;
  while (!waiting_.empty()) {
    const uint32_t index = waiting_.front();
    Request& request = requests_[index];
    const uint64_t left_bytes = request.request.bytes - request.cut_bytes;
    if (left_bytes == 0 || request.failure.has_value()) {
      // What a failed request has not begun is not begun any more.
      request.waiting = false;
      waiting_.Pop();
      MaybeFinishRequest(index);
      continue;
    }
    const auto address = reinterpret_cast<uintptr_t>(request.request.data) + request.cut_bytes;
    *slot = free_pieces_.back();
    free_pieces_.pop_back();
    PieceState& piece = pieces_[*slot];
    piece = PieceState{.request = index,
                       .generation = piece.generation,
                       .begin = request.cut_bytes,
                       .bytes = std::min({left_bytes, request_bytes_,
                                          kAddressCutBytes - address % kAddressCutBytes})};
    request.cut_bytes += piece.bytes;
    ++request.piece_count;
    if (request.cut_bytes == request.request.bytes) {
      request.waiting = false;
      waiting_.Pop();
    }
    return true;
  }
  return false;
}

bool TransferSet::NextAgain(uint32_t* slot) {
  while (!again_.empty()) {
    *slot = again_.Pop();
    if (!requests_[pieces_[*slot].request].failure.has_value()) return true;
    RetirePiece(*slot);  // another piece of the request failed: do not go on with this one
  }
  return false;
}

bool TransferSet::Next(Piece* out) {
  uint32_t slot = 0;
  if (!NextAgain(&slot) && !CutNext(&slot)) return false;
  PieceState& piece = pieces_[slot];
  const IoRequest& request = requests_[piece.request].request;
  const uint64_t begin = piece.begin + piece.done_bytes;
  piece.out = true;
  ++pieces_out_;
  *out = Piece{.token = MakeToken(slot, piece.generation),
               .direction = request.direction,
               .file = request.file,
               .offset = request.offset + begin,
               .data = request.data + begin,
               .bytes = piece.bytes - piece.done_bytes};
  return true;
}

void TransferSet::Finish(uint64_t token, int64_t result) {
  const uint32_t slot = SlotOf(token);
  MAREA_CHECK(slot < pieces_.size(), "a completion names no piece");
  PieceState& piece = pieces_[slot];
  MAREA_CHECK(piece.out && piece.generation == GenerationOf(token),
              "a completion comes late, for a piece that was reused");
  piece.out = false;
  ++piece.generation;
  --pieces_out_;
  if (result < 0) {
    Retry(slot, static_cast<int>(-result));
  } else {
    Advance(slot, static_cast<uint64_t>(result));
  }
}

void TransferSet::Advance(uint32_t slot, uint64_t bytes) {
  PieceState& piece = pieces_[slot];
  const Request& request = requests_[piece.request];
  const bool read = request.request.direction == IoDirection::kRead;
  const uint64_t left_bytes = piece.bytes - piece.done_bytes;
  MAREA_CHECK(bytes <= left_bytes, "more bytes were transferred than asked for");
  (read ? counters_.read_bytes : counters_.write_bytes) += bytes;
  if (bytes == left_bytes) {
    RetirePiece(slot);
    return;
  }
  ++counters_.short_transfers;
  if (bytes == 0) {
    FailPiece(slot, EIO, read ? "the file ends here" : "nothing was written");
    return;
  }
  // Direct I/O goes on at whole pages only: the rest of a page is transferred again.
  const uint64_t whole_bytes = bytes / kPageBytes * kPageBytes;
  piece.done_bytes += whole_bytes;
  if (whole_bytes > 0) {
    piece.transient_retries = 0;
  } else if (++piece.transient_retries > kTransientRetriesMax) {
    FailPiece(slot, EIO, "less than a page is transferred at a time");
    return;
  }
  again_.Push(slot);
}

void TransferSet::Retry(uint32_t slot, int error_number) {
  PieceState& piece = pieces_[slot];
  const bool transient = error_number == EINTR || error_number == EAGAIN;
  const bool retry = (transient && ++piece.transient_retries <= kTransientRetriesMax) ||
                     (error_number == EIO && !piece.retried_eio);
  if (!retry) {
    FailPiece(slot, error_number, nullptr);
    return;
  }
  if (error_number == EIO) piece.retried_eio = true;
  ++counters_.retries;
  again_.Push(slot);
}

void TransferSet::FailPiece(uint32_t slot, int error_number, const char* what) {
  const PieceState& piece = pieces_[slot];
  Request& request = requests_[piece.request];
  if (!request.failure.has_value()) {
    std::string text = DescribeTransfer(paths_[request.request.file], request.request.direction,
                                        request.request.offset + piece.begin + piece.done_bytes,
                                        piece.bytes - piece.done_bytes);
    if (piece.retried_eio) text += ", tried twice";
    if (what != nullptr) text = text + ": " + what;
    request.failure = Status::Io(text, error_number);
  }
  RetirePiece(slot);
}

void TransferSet::RetirePiece(uint32_t slot) {
  const uint32_t index = pieces_[slot].request;
  free_pieces_.push_back(slot);
  --requests_[index].piece_count;
  MaybeFinishRequest(index);
}

void TransferSet::MaybeFinishRequest(uint32_t index) {
  Request& request = requests_[index];
  if (request.piece_count > 0 || request.waiting) return;
  if (request.failure.has_value()) ++counters_.failures;
  finished_.Push(index);
}

void TransferSet::FailAll(const Status& status) {
  MAREA_CHECK(!status.ok(), "a device fails for a reason");
  const auto fail = [&](Request& request) {
    if (request.failure.has_value()) return;
    request.failure =
        status.WithContext(DescribeTransfer(paths_[request.request.file], request.request.direction,
                                            request.request.offset, request.request.bytes));
  };
  again_.Clear();
  std::vector<bool> retired(pieces_.size(), false);
  for (const uint32_t slot : free_pieces_) retired[slot] = true;
  for (uint32_t slot = 0; slot < pieces_.size(); ++slot) {
    if (retired[slot]) continue;
    PieceState& piece = pieces_[slot];
    if (piece.out) --pieces_out_;
    piece.out = false;
    ++piece.generation;
    fail(requests_[piece.request]);
    RetirePiece(slot);
  }
  while (!waiting_.empty()) {
    const uint32_t index = waiting_.Pop();
    requests_[index].waiting = false;
    fail(requests_[index]);
    MaybeFinishRequest(index);
  }
}

size_t TransferSet::TakeFinished(std::span<IoCompletion> completions) {
  size_t count = 0;
  while (count < completions.size() && !finished_.empty()) {
    Request& request = requests_[finished_.front()];
    completions[count].tag = request.request.tag;
    completions[count].status =
        request.failure.has_value() ? *std::move(request.failure) : Status::Ok();
    request.failure.reset();
    free_requests_.push_back(finished_.Pop());
    ++count;
  }
  return count;
}

}  // namespace marea
