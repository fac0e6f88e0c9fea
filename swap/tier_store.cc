#include "swap/tier_store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "io/check.h"
#include "io/units.h"

namespace marea {
namespace {

constexpr size_t kReapBatch = 64;

// A tag names a record and which use of it: a completion that comes late for a reused record is
// caught.
uint64_t Tag(uint32_t index, uint32_t generation) {
  return (uint64_t{generation} << 32) | index;
}

}  // namespace

void TierStore::PageDeleter::operator()(std::byte* page) const {
  ::operator delete[](page, std::align_val_t{kPageBytes});
}

TierStore::TierStore(const ChunkTable& table, PathLayout layout, uint32_t slots,
                     BlockDevice& device, uint32_t file, TierStoreOptions options)
    : table_(table),
      layout_(std::move(layout)),
      slots_(slots),
      device_(device),
      file_(file),
      options_(std::move(options)),
      local_of_chunk_(table.entries.size(), kNoTransfer),
      chunks_(layout_.homes.size()),
      superblock_page_(
          static_cast<std::byte*>(::operator new[](kPageBytes, std::align_val_t{kPageBytes}))) {
  MAREA_CHECK(device_.capacity() > 0, "a device takes at least one request");
  for (uint32_t local = 0; local < layout_.homes.size(); ++local) {
    const ChunkHome& home = layout_.homes[local];
    MAREA_CHECK(home.slot_count >= 1 && home.slot_count <= slots_, "a chunk has 1..slots slots");
    local_of_chunk_[home.chunk] = local;
  }
  completions_.assign(kReapBatch, IoCompletion{0, Status::Ok()});
}

TierStore::~TierStore() {
  MAREA_CHECK(pending_ == 0, "a store is destroyed with transfers in flight");
}

uint32_t TierStore::Local(uint32_t chunk) const {
  MAREA_CHECK(chunk < local_of_chunk_.size() && local_of_chunk_[chunk] != kNoTransfer,
              "a transfer names a chunk of this path");
  return local_of_chunk_[chunk];
}

uint32_t TierStore::current_slot(uint32_t chunk) const {
  return chunks_[Local(chunk)].slot;
}

uint32_t TierStore::NewTransfer() {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(transfers_.size()));
    transfers_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  const uint32_t generation = transfers_[index].generation + 1;
  transfers_[index] = Transfer{};
  transfers_[index].generation = generation;
  ++pending_;
  return index;
}

void TierStore::Start(const ChunkTransfer& transfer, ChunkDone done) {
  const uint32_t home = Local(transfer.chunk);
  MAREA_CHECK(reinterpret_cast<uintptr_t>(transfer.bytes.data()) % kPageBytes == 0 &&
                  transfer.bytes.size() % kPageBytes == 0,
              "a transfer's memory is page aligned, in whole pages");
  MAREA_CHECK(transfer.bytes.size() >= layout_.homes[home].bytes,
              "a transfer's memory holds the whole chunk");
  const uint32_t index = NewTransfer();
  Transfer& record = transfers_[index];
  record.what = transfer;
  record.done = std::move(done);
  record.home = home;
  Chunk& chunk = chunks_[home];
  if (chunk.last != kNoTransfer) {
    transfers_[chunk.last].next = index;
    chunk.last = index;
    return;
  }
  chunk.last = index;
  Begin(index);
}

void TierStore::Begin(uint32_t index) {
  Transfer& transfer = transfers_[index];
  const ChunkHome& home = layout_.homes[transfer.home];
  const Chunk& chunk = chunks_[transfer.home];
  if (!status_.ok()) {
    transfer.status = status_;
    ready_.push_back(index);
    return;
  }
  if (transfer.what.direction == IoDirection::kRead) {
    transfer.slot = chunk.slot;
    if (chunk.contents == Contents::kNever) {
      transfer.status =
          Status::Corrupt(fmt::format("{}: {} is read but was never written", layout_.path,
                                      Describe(table_.entries[home.chunk].id)));
      ready_.push_back(index);
      return;
    }
  } else {
    const bool elsewhere = chunk.committed && home.slot_count == 2;
    transfer.slot = elsewhere ? 1 - chunk.slot : chunk.slot;
    transfer.checksum = XXH3_64bits(transfer.what.bytes.data(), home.bytes);
  }
  if (options_.meter != nullptr) options_.meter->OnBegin(transfer.what.direction);
  unqueued_.push_back({.direction = transfer.what.direction,
                       .file = file_,
                       .offset = home.slot_offset[transfer.slot],
                       .data = transfer.what.bytes.data(),
                       .bytes = RoundUp(home.bytes, kPageBytes),
                       .tag = Tag(index, transfer.generation)});
}

void TierStore::StartSuperblock(Superblock superblock, uint64_t epoch, ChunkDone done) {
  MAREA_CHECK(pending_ == 0, "a superblock is written by an idle store");
  MAREA_CHECK(!epoch_written_ || epoch > *epoch_written_, "epochs grow");
  const uint32_t index = NewTransfer();
  Transfer& transfer = transfers_[index];
  transfer.done = std::move(done);
  transfer.superblock = true;
  transfer.epoch = epoch;
  // Bytes before the promise: what the epoch stands for is durable before the superblock is.
  if (status_.ok()) {
    Status flushed = options_.flush();
    if (!flushed.ok()) Fail(flushed.WithContext("before the superblock of " + layout_.path));
  }
  if (!status_.ok()) {
    transfer.status = status_;
    ready_.push_back(index);
    return;
  }
  Seal(superblock, epoch);
  std::memcpy(superblock_page_.get(), &superblock, sizeof superblock);
  unqueued_.push_back({.direction = IoDirection::kWrite,
                       .file = file_,
                       .offset = epoch % kSuperblockCopies * kPageBytes,
                       .data = superblock_page_.get(),
                       .bytes = kPageBytes,
                       .tag = Tag(index, transfer.generation)});
}

void TierStore::MarkCommitted() {
  MAREA_CHECK(pending_ == 0, "a commit happens in an idle store");
  for (Chunk& chunk : chunks_) chunk.committed = chunk.contents == Contents::kValid;
}

size_t TierStore::Poll(ReapWait wait) {
  Submit();
  Reap(ready_.empty() ? wait : ReapWait::kNo);
  // Verification is over before the first callback runs: a callback sees a consistent store, and
  // what it starts is handled by the next call.
  finished_.swap(ready_);
  std::vector<Call> calls;
  calls.reserve(finished_.size());
  for (const uint32_t index : finished_) calls.push_back(Finish(index));
  finished_.clear();
  Submit();
  for (Call& call : calls) call.done(std::move(call.status));
  Submit();
  return calls.size();
}

void TierStore::Submit() {
  if (!status_.ok()) return;
  std::array<IoRequest, kReapBatch> batch;
  while (!unqueued_.empty()) {
    const size_t room = device_.capacity() - device_.in_flight();
    const size_t count = std::min({room, unqueued_.size(), batch.size()});
    if (count == 0) return;
    std::copy_n(unqueued_.begin(), count, batch.begin());
    Status submitted = device_.Submit(std::span(batch.data(), count));
    if (!submitted.ok()) {
      Fail(submitted.WithContext(layout_.path));
      return;
    }
    unqueued_.erase(unqueued_.begin(), unqueued_.begin() + static_cast<ptrdiff_t>(count));
  }
}

void TierStore::Reap(ReapWait wait) {
  if (wait == ReapWait::kNo && device_.in_flight() == 0) return;
  while (true) {
    const size_t count = device_.Reap(completions_, wait);
    for (size_t i = 0; i < count; ++i) FinishIo(completions_[i]);
    if (count < completions_.size()) return;
    wait = ReapWait::kNo;
  }
}

void TierStore::FinishIo(const IoCompletion& completion) {
  const auto index = static_cast<uint32_t>(completion.tag);
  MAREA_CHECK(index < transfers_.size() &&
                  transfers_[index].generation == static_cast<uint32_t>(completion.tag >> 32),
              "a completion arrived for a transfer that is over");
  Transfer& transfer = transfers_[index];
  if (!completion.status.ok()) {
    transfer.status = NameFailure(transfer, completion.status);
    Fail(transfer.status);
  } else if (!status_.ok()) {
    transfer.status = status_;
  }
  MeterEnd(transfer);
  ready_.push_back(index);
}

void TierStore::MeterEnd(const Transfer& transfer) {
  if (options_.meter == nullptr || transfer.superblock) return;
  const bool arrived = transfer.status.ok();
  options_.meter->OnEnd(transfer.what.direction,
                        arrived ? RoundUp(layout_.homes[transfer.home].bytes, kPageBytes) : 0);
}

void TierStore::Fail(const Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  for (const IoRequest& request : unqueued_) {
    const auto index = static_cast<uint32_t>(request.tag);
    transfers_[index].status = status;
    MeterEnd(transfers_[index]);
    ready_.push_back(index);
  }
  unqueued_.clear();
}

TierStore::Call TierStore::Finish(uint32_t index) {
  Transfer& transfer = transfers_[index];
  if (transfer.superblock) {
    FinishSuperblock(transfer);
  } else {
    Chunk& chunk = chunks_[transfer.home];
    if (transfer.status.ok()) {
      if (transfer.what.direction == IoDirection::kRead) {
        transfer.status = VerifyRead(transfer);
      } else {
        if (transfer.slot != chunk.slot) chunk.committed = false;
        chunk.slot = transfer.slot;
        chunk.checksum = transfer.checksum;
        chunk.contents = Contents::kValid;
      }
    }
    const uint32_t next = transfer.next;
    if (next == kNoTransfer) {
      chunk.last = kNoTransfer;
    } else {
      Begin(next);
    }
  }
  Call call{std::move(transfer.done), std::move(transfer.status)};
  free_.push_back(index);
  --pending_;
  return call;
}

void TierStore::FinishSuperblock(Transfer& transfer) {
  if (!transfer.status.ok()) return;
  transfer.status = options_.flush();
  if (transfer.status.ok()) {
    epoch_written_ = transfer.epoch;
  } else {
    transfer.status = transfer.status.WithContext("after the superblock of " + layout_.path);
    Fail(transfer.status);
  }
}

Status TierStore::VerifyRead(const Transfer& transfer) const {
  const ChunkHome& home = layout_.homes[transfer.home];
  const uint64_t found = XXH3_64bits(transfer.what.bytes.data(), home.bytes);
  const uint64_t wanted = chunks_[transfer.home].checksum;
  if (found == wanted) return Status::Ok();
  return Status::Corrupt(
      fmt::format("{}: {} read back from offset {} is not what was written: checksum {:016x}, "
                  "expected {:016x}; the drive or its path is faulty",
                  layout_.path, Describe(table_.entries[home.chunk].id),
                  home.slot_offset[transfer.slot], found, wanted));
}

Status TierStore::NameFailure(const Transfer& transfer, const Status& status) const {
  if (transfer.superblock) return status.WithContext("writing the superblock of " + layout_.path);
  const char* verb = transfer.what.direction == IoDirection::kRead ? "reading" : "writing";
  const ChunkHome& home = layout_.homes[transfer.home];
  return status.WithContext(
      fmt::format("{}: {} {}", layout_.path, verb, Describe(table_.entries[home.chunk].id)));
}

}  // namespace marea
