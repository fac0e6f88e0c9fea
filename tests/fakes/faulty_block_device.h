// A simulated drive: BlockDevice in memory, under a virtual clock, seeded.
//
// Faults that it injects, and that a component above must survive or report:
//   latency and reordering    every piece completes after a random delay, in any order
//   short transfers           resumed by the shared TransferSet, as on a real device
//   EAGAIN, one EIO           retried by the shared TransferSet
//   EIO on a range            once or always: reported with path, offset and errno
//   bit rot                   FlipBit, or a random bit of a random read: only a checksum sees it
//   silence                   StopAnswering: nothing completes until StartAnswering
//   crash                     what was not synced is kept, dropped or torn, sector by sector
// Mistakes of the caller that it catches and stops at: bytes of a request that change before its
// completion was reaped, and overlapping requests in flight, on the drive or in
// memory, of which one writes there (a real device promises no order between them).
//
// Single-threaded: the test calls Submit and Reap, and advances the clock. Reap(kUntilOne) runs the
// clock until something finishes or no event is left; it never hangs, so a drive that is silent
// returns 0. Simulations with other actors use Reap(kNo) and run the clock themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "io/block_device.h"
#include "io/transfer_set.h"
#include "tests/fakes/virtual_clock.h"

namespace marea {

struct FaultyDeviceOptions {
  std::vector<uint64_t> file_bytes;  // file k is named "simulated/k"
  uint64_t seed = 0;
  VirtualClock::Nanoseconds latency_min = 10'000;
  VirtualClock::Nanoseconds latency_max = 1'000'000;
  double bytes_per_nanosecond = 2.0;  // added to the latency of each piece
  double short_transfer_probability = 0;
  double eagain_probability = 0;
  double transient_eio_probability = 0;  // of a try; two in a row for one piece fail its request
  double bit_rot_probability = 0;        // of a read piece: one bit differs from what was written
  BlockDeviceOptions device;
};

enum class FaultCount : uint8_t { kOnce, kAlways };

class FaultyBlockDevice : public BlockDevice {
 public:
  // `clock` outlives the device.
  FaultyBlockDevice(VirtualClock& clock, FaultyDeviceOptions options);
  ~FaultyBlockDevice() override;

  Status Submit(std::span<const IoRequest> requests) override;
  size_t Reap(std::span<IoCompletion> completions, ReapWait wait) override;
  void Wake() override { woken_ = true; }
  size_t in_flight() const override { return transfers_->in_flight(); }
  size_t capacity() const override { return transfers_->capacity(); }
  const IoModeReport& mode() const override { return mode_; }
  const IoCounters& counters() const override { return transfers_->counters(); }

  // Time of the clock's next event, and running the clock up to a time: shorthands for the clock.
  std::optional<VirtualClock::Nanoseconds> NextEventTime() const { return clock_.NextEventTime(); }
  void AdvanceTo(VirtualClock::Nanoseconds time) { clock_.AdvanceTo(time); }

  // Pieces of `direction` that touch [offset, offset + bytes) of `file` fail with `error_number`:
  // kOnce fails one piece once (EIO is then retried and succeeds), kAlways every time.
  void FailRange(uint32_t file, IoDirection direction, uint64_t offset, uint64_t bytes,
                 int error_number, FaultCount count);
  void ClearFaults() { faults_.clear(); }

  // Rot of one bit at rest. REQUIRES: offset lies within the file, bit < 8.
  void FlipBit(uint32_t file, uint64_t offset, int bit);

  void StopAnswering();
  // What was issued in the meantime completes after a fresh latency.
  void StartAnswering();

  // Everything written and completed so far survives a crash.
  void Sync();

  // Power is lost: every request in flight is forgotten (never completes), and each sector written
  // since the last Sync, in flight or completed, holds its old or its new bytes. The device can be
  // used again at once, as after a restart.
  void Crash();

  // The bytes of a file as a reader would now find them.
  std::span<const std::byte> contents(uint32_t file) const { return files_[file].now; }

 private:
  struct File {
    std::vector<std::byte> now;
    std::vector<std::byte> durable;
    std::vector<bool> dirty_sectors;  // differ, or may, between now and durable
  };
  struct Fault {
    uint32_t file;
    IoDirection direction;
    uint64_t offset;
    uint64_t bytes;
    int error_number;
    FaultCount count;
  };
  struct Outstanding {
    IoRequest request;  // with the caller's tag; the transfer set knows its place in outstanding_
    uint64_t fingerprint;  // of the bytes to write, to catch a caller that changes them
  };

  void Pump();
  void ScheduleAnswer(const TransferSet::Piece& piece);
  void Answer(const TransferSet::Piece& piece);
  int64_t Perform(const TransferSet::Piece& piece);
  int TakeFault(const TransferSet::Piece& piece);
  void CheckNoOverlap(const IoRequest& request) const;
  void MarkDirty(uint32_t file, uint64_t offset, uint64_t bytes);
  bool Chance(double probability);
  void MakeTransfers();

  VirtualClock& clock_;
  const FaultyDeviceOptions options_;
  std::mt19937_64 random_;
  IoModeReport mode_;
  std::vector<File> files_;
  std::vector<Fault> faults_;
  std::unique_ptr<TransferSet> transfers_;
  std::vector<TransferSet::Piece> issued_;               // pieces that have not answered
  std::vector<std::optional<Outstanding>> outstanding_;  // submitted and not reaped
  // Which events of the clock still count: a crash or the destructor bumps it.
  std::shared_ptr<uint64_t> life_ = std::make_shared<uint64_t>(0);
  bool answering_ = true;
  bool woken_ = false;
};

}  // namespace marea
