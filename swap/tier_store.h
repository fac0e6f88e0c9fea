// The NVMe homes of one path's chunks: placement, slots, checksums, order.
//
// Passive and single-threaded: whoever drives it (IoThread in a run, the simulation in tests) calls
// Start and Poll; nothing happens in between. Owner: NvmeTier or a test. It owns no file and no
// device; both outlive it.
//
// Guarantees:
// - Transfers of one chunk run one at a time, in the order of Start; chunks overlap freely.
// - A write's XXH3-64 is taken before its bytes leave and remembered when they have arrived; a
//   read's bytes are handed up only if they match it, otherwise Corrupt names the shard, the path
//   and the offset.
// - Two slots: the first write after MarkCommitted goes to the slot that does not hold the
//   committed bytes; later ones in place there. Reads come from the newest.
// - A failed request fails the store: its transfer and all others, pending or later, complete with
//   that Status. A mismatched checksum fails its own transfer only.
// - A transfer is one request: the device cuts it up and bounds what the kernel sees at once.
//
// Faults survived: any order of completions, requests larger than the device takes at once. Faults
// detected: EIO, bit rot, misdirected or lost writes within a run (the checksum lives in memory).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "io/block_device.h"
#include "io/status.h"
#include "swap/chunk_io.h"
#include "swap/chunk_table.h"
#include "swap/path_meter.h"
#include "swap/store_layout.h"
#include "swap/superblock.h"

namespace marea {

struct TierStoreOptions {
  // Makes everything that has completed durable (fdatasync of the file in a run).
  std::function<Status()> flush = [] { return Status::Ok(); };
  // Told of every chunk that goes to the device and comes back; outlives the store. Null: nobody.
  PathMeter* meter = nullptr;
};

class TierStore {
 public:
  // Holds `layout`'s chunks in file `file` of `device`. REQUIRES: device.capacity() > 0.
  TierStore(const ChunkTable& table, PathLayout layout, uint32_t slots, BlockDevice& device,
            uint32_t file, TierStoreOptions options = {});
  ~TierStore();  // REQUIRES: pending() == 0

  // Never blocks and never calls `done` itself: Poll does. `transfer.chunk` is the table index of a
  // chunk of this path. REQUIRES: bytes are page aligned, whole pages, at least the chunk's length,
  // and stay untouched (write) or unread (read) until `done`.
  void Start(const ChunkTransfer& transfer, ChunkDone done);

  // Submits what the device has room for, reaps once, then calls `done` of what has finished (which
  // may call Start). With kUntilOne, blocks as BlockDevice::Reap does, unless there was something
  // to finish without the device. Returns the number of finished transfers.
  size_t Poll(ReapWait wait);

  // Starts the durable write of the superblock of `epoch`: flush, write the older copy, flush. The
  // store must be idle; `superblock` is completed by the store (epoch, checksum).
  // REQUIRES: pending() == 0, epoch > the last one written.
  void StartSuperblock(Superblock superblock, uint64_t epoch, ChunkDone done);

  // What has been written so far is committed: no later write touches it. Called once the
  // superblocks of every path hold the epoch. REQUIRES: pending() == 0.
  void MarkCommitted();

  size_t pending() const { return pending_; }  // started, `done` not yet called
  const Status& status() const { return status_; }
  const PathLayout& layout() const { return layout_; }
  // Which slot a read of this chunk would use; for inspection and tests. By table index.
  uint32_t current_slot(uint32_t chunk) const;

 private:
  enum class Contents : uint8_t { kNever, kValid };
  static constexpr uint32_t kNoTransfer = UINT32_MAX;

  // Everything known about a chunk. Its transfers form a list through Transfer::next.
  struct Chunk {
    Contents contents = Contents::kNever;
    uint8_t slot = 0;             // holds the newest bytes
    bool committed = false;       // and they are committed: the next write goes elsewhere
    uint64_t checksum = 0;        // of the newest bytes
    uint32_t last = kNoTransfer;  // the transfer started last, if any is pending
  };
  // A record is reused once its transfer is over.
  struct Transfer {
    ChunkTransfer what{};
    ChunkDone done;
    uint32_t home = 0;            // position in layout_.homes
    uint32_t next = kNoTransfer;  // next transfer of the same chunk
    uint32_t generation = 0;      // which use of this record: late completions are caught
    uint8_t slot = 0;
    bool superblock = false;
    uint64_t epoch = 0;     // superblock only
    uint64_t checksum = 0;  // writes: of the bytes on their way
    Status status = Status::Ok();
  };
  // A callback that is due.
  struct Call {
    ChunkDone done;
    Status status;
  };

  uint32_t Local(uint32_t chunk) const;
  uint32_t NewTransfer();
  void Begin(uint32_t index);
  void Submit();
  void Reap(ReapWait wait);
  void FinishIo(const IoCompletion& completion);
  void MeterEnd(const Transfer& transfer);
  Call Finish(uint32_t index);
  void FinishSuperblock(Transfer& transfer);
  void Fail(const Status& status);
  Status VerifyRead(const Transfer& transfer) const;
  Status NameFailure(const Transfer& transfer, const Status& status) const;

  const ChunkTable& table_;
  const PathLayout layout_;
  const uint32_t slots_;
  BlockDevice& device_;
  const uint32_t file_;
  const TierStoreOptions options_;

  std::vector<uint32_t> local_of_chunk_;  // by table index; kNoTransfer: not on this path
  std::vector<Chunk> chunks_;             // parallel to layout_.homes
  std::vector<Transfer> transfers_;
  std::vector<uint32_t> free_;      // records of transfers_ that are not in use
  std::deque<IoRequest> unqueued_;  // waits for room in the device
  std::vector<uint32_t> ready_;     // I/O is over, Finish is due
  std::vector<uint32_t> finished_;  // scratch of Poll
  std::vector<IoCompletion> completions_;
  size_t pending_ = 0;
  std::optional<uint64_t> epoch_written_;
  Status status_ = Status::Ok();
  struct PageDeleter {
    void operator()(std::byte* page) const;
  };
  std::unique_ptr<std::byte[], PageDeleter> superblock_page_;
};

}  // namespace marea
