// Where the valid bytes of every chunk are, and what is on its way.
//
// One row per chunk, one enum per row, one transition function with a table. The plan says what
// should be where; residency says what is; the swapper checks one against the other at every op. An
// event that the state does not allow is refused with a sentence naming shard, both states and
// event, and changes nothing.
//
// A *copy* is a ring value that holds the chunk's bytes outside their home; it holds one Lease from
// the op that fills it to the last op of the turn that uses it. Copies never go stale: bytes may
// change only while there is no other copy.
//
// Thread rule: not thread-safe; the swapper calls it under its lock.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/status.h"
#include "swap/chunk_table.h"

namespace marea {

enum class Residency : uint8_t {
  kEmpty,     // no tier holds valid bytes; nothing in flight
  kHome,      // the home holds the bytes, nothing else does; nothing in flight
  kFetching,  // home valid; one or more copies are being filled (others may be valid)
  kShared,    // home and one or more copies valid; nothing in flight
  kModified,  // home stale; one or more copies hold the newest bytes, more may be filling
  kWriting,   // copies valid as in kModified; one is on its way home, which is neither old nor new
  kHomeChanging,  // an op rewrites the home in place; there are no copies
  kCopyChanging,  // an op rewrites the only copy; the home is stale
};
inline constexpr int kResidencyCount = 8;
const char* ResidencyName(Residency state);  // "home", "fetching", ...

enum class ResidencyEvent : uint8_t {
  kFetch,         // a copy begins to be filled from the home
  kSpread,        // a copy begins to be filled from another copy
  kFilled,        // that fill has ended well
  kFillFailed,    // or not
  kUseHome,       // an op begins to read the home
  kUseCopy,       // an op begins to read a copy
  kChangeHome,    // an op begins to change the home in place
  kProduceHome,   // the same, without reading what was there
  kChangeCopy,    // an op begins to change a copy
  kProduceCopy,   // the same, without reading what was there
  kChanged,       // the change has ended well
  kChangeFailed,  // or not: the bytes are lost
  kWriteBack,     // a copy begins its way home
  kWritten,       // it has arrived
  kWriteFailed,   // or not
  kRelease,       // a copy is given up
};
inline constexpr int kResidencyEventCount = 16;
const char* ResidencyEventName(ResidencyEvent event);  // "fetch", ...

class ResidencyTable;

// Proof that a copy of a chunk is pinned in place; giving it up is the event kRelease. Move-only.
// Thread rule: as ResidencyTable.
class Lease {
 public:
  Lease() = default;  // holds nothing
  Lease(Lease&& other) noexcept : table_(std::exchange(other.table_, nullptr)), row_(other.row_) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(row_, other.row_);
    return *this;
  }
  ~Lease();

  explicit operator bool() const { return table_ != nullptr; }
  // Gives the copy up. An illegal release (the newest bytes would be lost) is a Status and the
  // lease is gone all the same.
  Status Release();

 private:
  friend class ResidencyTable;
  Lease(ResidencyTable* table, uint32_t row) : table_(table), row_(row) {}
  ResidencyTable* table_ = nullptr;
  uint32_t row_ = 0;
};

class ResidencyTable {
 public:
  // What is known of one chunk.
  struct Row {
    ShardChunk id;
    // Some shards (a partial within one wave) live in ring values only. A home may be on another
    // rank: such a row begins in kHome and is never empty.
    bool has_home = false;
    Residency state = Residency::kEmpty;
    uint32_t copies = 0;        // valid or being changed
    uint32_t filling = 0;       // copies being filled
    uint32_t home_readers = 0;  // ops in flight that read the home
    uint32_t copy_readers = 0;  // ops in flight that read a copy
    uint32_t leases = 0;        // always copies + filling

    // Bytes that nobody misses once their users are done: no home need hold them.
    bool transient() const { return id.kind == ShardKind::kPartial; }
  };

  explicit ResidencyTable(std::vector<Row> rows);
  ~ResidencyTable();  // REQUIRES: CheckIdle

  // Begins and ends: each Begin that returned Ok is followed by exactly one End, one that did not
  // by none. The Lease of a new copy is filled in by the call that begins to fill or produce it; an
  // End that reports failure takes it away again, for the bytes are not there.
  Status BeginFetch(uint32_t row, Lease& copy);   // REQUIRES: `copy` holds nothing
  Status BeginSpread(uint32_t row, Lease& copy);  // REQUIRES: `copy` holds nothing
  void EndFetch(uint32_t row, Lease& copy, bool ok);
  void EndSpread(uint32_t row, Lease& copy, bool ok);
  Status BeginUseHome(uint32_t row);
  Status BeginUseCopy(uint32_t row);
  void EndUseHome(uint32_t row);
  void EndUseCopy(uint32_t row);
  Status BeginChangeHome(uint32_t row);
  Status BeginProduceHome(uint32_t row);
  void EndChangeHome(uint32_t row, bool ok);
  Status BeginChangeCopy(uint32_t row);
  Status BeginProduceCopy(uint32_t row,
                          Lease& copy);  // `copy` may hold the row's only copy already
  void EndChangeCopy(uint32_t row, Lease& copy, bool ok);
  Status BeginWriteBack(uint32_t row);
  void EndWriteBack(uint32_t row, bool ok);

  const Row& row(uint32_t index) const { return rows_[index]; }
  uint32_t row_count() const { return static_cast<uint32_t>(rows_.size()); }

  // Every count is zero and no state has anything in flight, or a sentence naming the first row
  // where that is not so. Called at shutdown and at the end of every test.
  Status CheckIdle() const;

 private:
  friend class Lease;
  // The one place where a state changes. `has_lease`: the copy that the event is about exists.
  // Refuses and changes nothing, or applies.
  Status Apply(uint32_t row, ResidencyEvent event, bool has_lease = true);
  void Must(uint32_t row, ResidencyEvent event);  // an End that is refused is a programmer error
  Status Release(uint32_t row);
  void TakeAway(Lease& copy);

  std::vector<Row> rows_;
};

}  // namespace marea
