#include "tests/fakes/faulty_block_device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/check.h"

namespace marea {
namespace {

constexpr uint64_t kSectorBytes = 512;

bool Overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// FNV-1a over words: enough to see that bytes changed.
uint64_t Fingerprint(const std::byte* data, uint64_t bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, sizeof(word));
    hash = (hash ^ word) * 0x100000001b3;
  }
  return hash;
}

std::vector<std::string> Names(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("simulated/" + std::to_string(i));
  return names;
}

}  // namespace

FaultyBlockDevice::FaultyBlockDevice(VirtualClock& clock, FaultyDeviceOptions options)
    : clock_(clock),
      options_(std::move(options)),
      random_(options_.seed),
      mode_{IoMode::kSimulated, "", "", ""} {
  MAREA_CHECK(options_.latency_min <= options_.latency_max, "latencies are the wrong way round");
  for (const uint64_t bytes : options_.file_bytes) {
    MAREA_CHECK(bytes % kPageBytes == 0, "a file holds whole pages");
    File file;
    // What was never written is garbage, as on a drive.
    file.now.resize(bytes);
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      const uint64_t word = random_();
      std::memcpy(file.now.data() + at, &word, sizeof(word));
    }
    file.durable = file.now;
    file.dirty_sectors.assign(bytes / kSectorBytes, false);
    files_.push_back(std::move(file));
  }
  MakeTransfers();
}

FaultyBlockDevice::~FaultyBlockDevice() {
  ++*life_;
}

void FaultyBlockDevice::MakeTransfers() {
  transfers_ = std::make_unique<TransferSet>(options_.device, Names(files_.size()));
  issued_.clear();
  outstanding_.assign(options_.device.capacity, std::nullopt);
}

Status FaultyBlockDevice::Submit(std::span<const IoRequest> requests) {
  MAREA_CHECK(requests.size() <= capacity() - in_flight(), "more requests than the capacity");
  for (IoRequest request : requests) {
    MAREA_CHECK(request.file < files_.size(), "no such file");
    CheckNoOverlap(request);
    const auto slot = std::find_if(outstanding_.begin(), outstanding_.end(),
                                   [](const auto& entry) { return !entry.has_value(); });
    *slot = Outstanding{request, request.direction == IoDirection::kWrite
                                     ? Fingerprint(request.data, request.bytes)
                                     : 0};
    request.tag = static_cast<uint64_t>(slot - outstanding_.begin());
    transfers_->Add(request);
  }
  Pump();
  return Status::Ok();
}

size_t FaultyBlockDevice::Reap(std::span<IoCompletion> completions, ReapWait wait) {
  if (wait == ReapWait::kUntilOne) {
    while (!transfers_->has_finished() && !woken_ && clock_.RunNext()) {
    }
    woken_ = false;
  }
  const size_t count = transfers_->TakeFinished(completions);
  for (size_t i = 0; i < count; ++i) {
    std::optional<Outstanding>& slot = outstanding_[completions[i].tag];
    const IoRequest& request = slot->request;
    MAREA_CHECK(request.direction == IoDirection::kRead ||
                    Fingerprint(request.data, request.bytes) == slot->fingerprint,
                "bytes of a write changed before its completion was reaped");
    completions[i].tag = request.tag;
    slot.reset();
  }
  return count;
}

void FaultyBlockDevice::Pump() {
  TransferSet::Piece piece;
  while (transfers_->Next(&piece)) {
    issued_.push_back(piece);
    if (answering_) ScheduleAnswer(piece);
  }
}

void FaultyBlockDevice::ScheduleAnswer(const TransferSet::Piece& piece) {
  const auto spread = options_.latency_max - options_.latency_min + 1;
  const auto transfer =
      static_cast<uint64_t>(static_cast<double>(piece.bytes) / options_.bytes_per_nanosecond);
  clock_.ScheduleAfter(options_.latency_min + random_() % spread + transfer,
                       [this, piece, life = life_, born = *life_] {
                         if (*life == born) Answer(piece);
                       });
}

void FaultyBlockDevice::Answer(const TransferSet::Piece& piece) {
  const auto same = [&](const TransferSet::Piece& other) { return other.token == piece.token; };
  const auto found = std::find_if(issued_.begin(), issued_.end(), same);
  MAREA_CHECK(found != issued_.end(), "a piece answers twice");
  issued_.erase(found);
  transfers_->Finish(piece.token, Perform(piece));
  Pump();
}

// Acts like pread or pwrite on the bytes in memory.
int64_t FaultyBlockDevice::Perform(const TransferSet::Piece& piece) {
  const int fault = TakeFault(piece);
  if (fault != 0) return -fault;
  if (Chance(options_.eagain_probability)) return -EAGAIN;
  if (Chance(options_.transient_eio_probability)) return -EIO;
  File& file = files_[piece.file];
  if (piece.offset >= file.now.size()) {
    return piece.direction == IoDirection::kRead ? 0 : -ENOSPC;
  }
  uint64_t bytes = std::min<uint64_t>(piece.bytes, file.now.size() - piece.offset);
  if (Chance(options_.short_transfer_probability)) {
    bytes = 1 + random_() % bytes;
    // A read may stop anywhere; a direct write stops at a sector.
    if (piece.direction == IoDirection::kWrite) bytes = RoundUp(bytes, kSectorBytes);
  }
  if (piece.direction == IoDirection::kWrite) {
    std::memcpy(file.now.data() + piece.offset, piece.data, bytes);
    MarkDirty(piece.file, piece.offset, bytes);
  } else {
    std::memcpy(piece.data, file.now.data() + piece.offset, bytes);
    if (Chance(options_.bit_rot_probability)) {
      piece.data[random_() % bytes] ^= std::byte{1} << (random_() % 8);
    }
  }
  return static_cast<int64_t>(bytes);
}

int FaultyBlockDevice::TakeFault(const TransferSet::Piece& piece) {
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    if (fault->file != piece.file || fault->direction != piece.direction ||
        !Overlap(fault->offset, fault->bytes, piece.offset, piece.bytes)) {
      continue;
    }
    const int error_number = fault->error_number;
    if (fault->count == FaultCount::kOnce) faults_.erase(fault);
    return error_number;
  }
  return 0;
}

void FaultyBlockDevice::CheckNoOverlap(const IoRequest& request) const {
  for (const std::optional<Outstanding>& slot : outstanding_) {
    if (!slot.has_value()) continue;
    const IoRequest& other = slot->request;
    const bool writes =
        request.direction == IoDirection::kWrite || other.direction == IoDirection::kWrite;
    MAREA_CHECK(!writes || request.file != other.file ||
                    !Overlap(request.offset, request.bytes, other.offset, other.bytes),
                "overlapping requests are in flight and one of them writes");
    const bool same_memory = Overlap(reinterpret_cast<uintptr_t>(request.data), request.bytes,
                                     reinterpret_cast<uintptr_t>(other.data), other.bytes);
    MAREA_CHECK(!same_memory || (request.direction == IoDirection::kWrite &&
                                 other.direction == IoDirection::kWrite),
                "requests in flight share memory and one of them reads into it");
  }
}

void FaultyBlockDevice::FailRange(uint32_t file, IoDirection direction, uint64_t offset,
                                  uint64_t bytes, int error_number, FaultCount count) {
  faults_.push_back({file, direction, offset, bytes, error_number, count});
}

void FaultyBlockDevice::FlipBit(uint32_t file, uint64_t offset, int bit) {
  MAREA_CHECK(file < files_.size() && offset < files_[file].now.size() && bit >= 0 && bit < 8,
              "there is no such bit");
  files_[file].now[offset] ^= std::byte{1} << bit;
  files_[file].durable[offset] ^= std::byte{1} << bit;
}

void FaultyBlockDevice::StopAnswering() {
  answering_ = false;
  ++*life_;  // answers that were on their way are lost; StartAnswering schedules new ones
}

void FaultyBlockDevice::StartAnswering() {
  if (answering_) return;
  answering_ = true;
  for (const TransferSet::Piece& piece : issued_) ScheduleAnswer(piece);
}

void FaultyBlockDevice::MarkDirty(uint32_t file, uint64_t offset, uint64_t bytes) {
  const uint64_t end = DivideRoundUp(offset + bytes, kSectorBytes);
  for (uint64_t sector = offset / kSectorBytes; sector < end; ++sector) {
    files_[file].dirty_sectors[sector] = true;
  }
}

void FaultyBlockDevice::Sync() {
  for (File& file : files_) {
    for (uint64_t sector = 0; sector < file.dirty_sectors.size(); ++sector) {
      if (!file.dirty_sectors[sector]) continue;
      const auto begin = file.now.begin() + static_cast<ptrdiff_t>(sector * kSectorBytes);
      std::copy(begin, begin + kSectorBytes,
                file.durable.begin() + static_cast<ptrdiff_t>(sector * kSectorBytes));
      file.dirty_sectors[sector] = false;
    }
  }
}

void FaultyBlockDevice::Crash() {
  // What was in flight may have reached the drive too: it counts as written, then each sector is
  // kept or lost like the others.
  for (const TransferSet::Piece& piece : issued_) {
    File& file = files_[piece.file];
    if (piece.direction == IoDirection::kRead || piece.offset >= file.now.size()) continue;
    const uint64_t bytes = std::min<uint64_t>(piece.bytes, file.now.size() - piece.offset);
    std::memcpy(file.now.data() + piece.offset, piece.data, bytes);
    MarkDirty(piece.file, piece.offset, bytes);
  }
  for (File& file : files_) {
    for (uint64_t sector = 0; sector < file.dirty_sectors.size(); ++sector) {
      if (!file.dirty_sectors[sector]) continue;
      const auto at = static_cast<ptrdiff_t>(sector * kSectorBytes);
      if (Chance(0.5)) {
        std::copy_n(file.durable.begin() + at, kSectorBytes, file.now.begin() + at);
      } else {
        std::copy_n(file.now.begin() + at, kSectorBytes, file.durable.begin() + at);
      }
      file.dirty_sectors[sector] = false;
    }
  }
  ++*life_;
  answering_ = true;
  woken_ = false;
  MakeTransfers();
}

bool FaultyBlockDevice::Chance(double probability) {
  if (probability <= 0) return false;
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

}  // namespace marea
