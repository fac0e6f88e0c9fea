#include "swap/residency.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "io/check.h"

namespace marea {
namespace {

using R = Residency;
using E = ResidencyEvent;

// Where an event leads from a state. kNo: nowhere, it is illegal. kSettle: to kFetching, kShared or
// kHome, as the counts say (the home is valid). kLeave: to the same state while a copy is left,
// else to kEmpty.
enum class Next : uint8_t {
  kEmpty,
  kHome,
  kFetching,
  kShared,
  kModified,
  kWriting,
  kHomeChanging,
  kCopyChanging,
  kNo,
  kSettle,
  kLeave,
};
constexpr Next kNo = Next::kNo;

using TableRow = std::array<Next, kResidencyEventCount>;

constexpr TableRow Row(std::initializer_list<std::pair<E, Next>> legal) {
  TableRow row{};
  for (Next& next : row) next = kNo;
  for (const auto& [event, next] : legal) row[static_cast<size_t>(event)] = next;
  return row;
}

// The transition table, by state in the order of the enum.
constexpr std::array<TableRow, kResidencyCount> kTable = {
    // kEmpty
    Row({{E::kProduceHome, Next::kHomeChanging}, {E::kProduceCopy, Next::kCopyChanging}}),
    // kHome
    Row({{E::kFetch, Next::kFetching},
         {E::kUseHome, Next::kHome},
         {E::kChangeHome, Next::kHomeChanging},
         {E::kProduceHome, Next::kHomeChanging},
         {E::kProduceCopy, Next::kCopyChanging}}),
    // kFetching
    Row({{E::kFetch, Next::kFetching},
         {E::kSpread, Next::kFetching},
         {E::kFilled, Next::kSettle},
         {E::kFillFailed, Next::kSettle},
         {E::kUseHome, Next::kFetching},
         {E::kUseCopy, Next::kFetching},
         {E::kWriteBack, Next::kWriting},
         {E::kRelease, Next::kSettle}}),
    // kShared
    Row({{E::kFetch, Next::kFetching},
         {E::kSpread, Next::kFetching},
         {E::kUseHome, Next::kShared},
         {E::kUseCopy, Next::kShared},
         {E::kChangeCopy, Next::kCopyChanging},
         {E::kProduceCopy, Next::kCopyChanging},
         {E::kWriteBack, Next::kWriting},
         {E::kRelease, Next::kSettle}}),
    // kModified
    Row({{E::kSpread, Next::kModified},
         {E::kFilled, Next::kModified},
         {E::kFillFailed, Next::kModified},
         {E::kUseCopy, Next::kModified},
         {E::kChangeCopy, Next::kCopyChanging},
         {E::kProduceCopy, Next::kCopyChanging},
         {E::kWriteBack, Next::kWriting},
         {E::kRelease, Next::kLeave}}),
    // kWriting
    Row({{E::kSpread, Next::kWriting},
         {E::kFilled, Next::kWriting},
         {E::kFillFailed, Next::kWriting},
         {E::kUseCopy, Next::kWriting},
         {E::kWritten, Next::kSettle},
         {E::kWriteFailed, Next::kModified},
         {E::kRelease, Next::kWriting}}),
    // kHomeChanging
    Row({{E::kChanged, Next::kHome}, {E::kChangeFailed, Next::kEmpty}}),
    // kCopyChanging
    Row({{E::kChanged, Next::kModified}, {E::kChangeFailed, Next::kEmpty}}),
};

// What the counts forbid although the table allows it; nullptr if nothing.
const char* Objection(const ResidencyTable::Row& row, E event, bool has_lease) {
  switch (event) {
    case E::kFetch:
    case E::kUseHome:
    case E::kChangeHome:
    case E::kProduceHome:
      if (!row.has_home) return "it has no home";
      if ((event == E::kChangeHome || event == E::kProduceHome) && row.home_readers > 0) {
        return "an op is reading the home";
      }
      return nullptr;
    case E::kSpread:
    case E::kUseCopy:
      return row.copies > 0 ? nullptr : "no copy is valid";
    case E::kChangeCopy:
    case E::kProduceCopy:
      if (row.filling > 0) return "another copy is being filled";
      if (row.copy_readers > 0) return "an op is reading a copy";
      if (row.copies > (has_lease ? 1u : 0u)) return "another copy would be stale";
      return nullptr;
    case E::kWriteBack:
      if (!row.has_home) return "it has no home";
      return row.home_readers > 0 ? "an op is reading the home" : nullptr;
    case E::kRelease:
      if (row.copies == 0) return "no copy is valid";
      if (row.copies > 1 || row.transient()) return nullptr;
      if (row.state == R::kModified || row.state == R::kWriting) {
        return "its newest bytes are not at home and would be lost";
      }
      return nullptr;
    default:
      return nullptr;
  }
}

void Count(ResidencyTable::Row& row, E event, bool has_lease) {
  switch (event) {
    case E::kFetch:
    case E::kSpread:
      ++row.filling;
      ++row.leases;
      ++(event == E::kFetch ? row.home_readers : row.copy_readers);
      break;
    case E::kFilled:
      --row.filling;
      ++row.copies;
      break;
    case E::kFillFailed:
      --row.filling;
      break;
    case E::kUseHome:
      ++row.home_readers;
      break;
    case E::kUseCopy:
    case E::kWriteBack:
      ++row.copy_readers;
      break;
    case E::kProduceCopy:
      if (!has_lease) {
        ++row.copies;
        ++row.leases;
      }
      break;
    case E::kWritten:
    case E::kWriteFailed:
      --row.copy_readers;
      break;
    case E::kRelease:
      --row.copies;
      --row.leases;
      break;
    case E::kChangeHome:
    case E::kProduceHome:
    case E::kChangeCopy:
    case E::kChanged:
    case E::kChangeFailed:
      break;
  }
}

R Settle(const ResidencyTable::Row& row) {
  if (row.filling > 0) return R::kFetching;
  return row.copies > 0 ? R::kShared : R::kHome;
}

// The state that an event means to bring about, for messages.
R Intended(E event) {
  switch (event) {
    case E::kFetch:
    case E::kSpread:
      return R::kFetching;
    case E::kFilled:
    case E::kUseCopy:
      return R::kShared;
    case E::kChangeCopy:
    case E::kProduceCopy:
      return R::kCopyChanging;
    case E::kChangeHome:
    case E::kProduceHome:
      return R::kHomeChanging;
    case E::kWriteBack:
      return R::kWriting;
    case E::kWriteFailed:
    case E::kChanged:
      return R::kModified;
    case E::kChangeFailed:
      return R::kEmpty;
    case E::kUseHome:
    case E::kWritten:
    case E::kFillFailed:
    case E::kRelease:
      return R::kHome;
  }
  return R::kEmpty;
}

}  // namespace

const char* ResidencyName(Residency state) {
  static constexpr const char* kNames[kResidencyCount] = {
      "empty",    "home",    "fetching",      "shared",
      "modified", "writing", "home_changing", "copy_changing"};
  return kNames[static_cast<int>(state)];
}

const char* ResidencyEventName(ResidencyEvent event) {
  static constexpr const char* kNames[kResidencyEventCount] = {
      "fetch",       "spread",       "filled",       "fill_failed",  "use_home", "use_copy",
      "change_home", "produce_home", "change_copy",  "produce_copy", "changed",  "change_failed",
      "write_back",  "written",      "write_failed", "release"};
  return kNames[static_cast<int>(event)];
}

Lease::~Lease() {
  (void)Release();
}

Status Lease::Release() {
  ResidencyTable* table = std::exchange(table_, nullptr);
  return table == nullptr ? Status::Ok() : table->Release(row_);
}

ResidencyTable::ResidencyTable(std::vector<Row> rows) : rows_(std::move(rows)) {}

ResidencyTable::~ResidencyTable() {
  for (const Row& row : rows_) MAREA_CHECK(row.leases == 0, "a lease outlives its table");
}

Status ResidencyTable::Apply(uint32_t index, ResidencyEvent event, bool has_lease) {
  Row& row = rows_[index];
  const Next next = kTable[static_cast<size_t>(row.state)][static_cast<size_t>(event)];
  const char* objection =
      next == kNo ? "the state does not allow it" : Objection(row, event, has_lease);
  if (objection != nullptr) {
    return Status::Failed(fmt::format("{} is {} and cannot become {} by the event {}: {}",
                                      Describe(row.id), ResidencyName(row.state),
                                      ResidencyName(Intended(event)), ResidencyEventName(event),
                                      objection));
  }
  Count(row, event, has_lease);
  if (next == Next::kSettle) {
    row.state = Settle(row);
  } else if (next == Next::kLeave) {
    if (row.copies == 0) row.state = R::kEmpty;
  } else {
    row.state = static_cast<Residency>(next);
  }
  return Status::Ok();
}

void ResidencyTable::Must(uint32_t index, ResidencyEvent event) {
  const Status status = Apply(index, event);
  MAREA_CHECK(status.ok(), status.message().c_str());
}

void ResidencyTable::TakeAway(Lease& copy) {
  MAREA_CHECK(copy.table_ == this, "the copy that failed is leased");
  --rows_[copy.row_].leases;
  copy.table_ = nullptr;
}

Status ResidencyTable::Release(uint32_t index) {
  Status status = Apply(index, E::kRelease);
  if (status.ok()) return status;
  // The lease is gone in any case; so are the bytes.
  Row& row = rows_[index];
  if (row.copies > 0) {
    --row.copies;
  } else {
    MAREA_CHECK(row.filling > 0, "a lease is a copy or a fill");
    --row.filling;
  }
  --row.leases;
  if (row.leases == 0) row.state = R::kEmpty;
  return status;
}

Status ResidencyTable::BeginFetch(uint32_t row, Lease& copy) {
  MAREA_CHECK(!copy, "a fill begins in a place that holds nothing");
  MAREA_RETURN_IF_ERROR(Apply(row, E::kFetch));
  copy = Lease(this, row);
  return Status::Ok();
}

Status ResidencyTable::BeginSpread(uint32_t row, Lease& copy) {
  MAREA_CHECK(!copy, "a fill begins in a place that holds nothing");
  MAREA_RETURN_IF_ERROR(Apply(row, E::kSpread));
  copy = Lease(this, row);
  return Status::Ok();
}

void ResidencyTable::EndFetch(uint32_t row, Lease& copy, bool ok) {
  EndUseHome(row);
  Must(row, ok ? E::kFilled : E::kFillFailed);
  if (!ok) TakeAway(copy);
}

void ResidencyTable::EndSpread(uint32_t row, Lease& copy, bool ok) {
  EndUseCopy(row);
  Must(row, ok ? E::kFilled : E::kFillFailed);
  if (!ok) TakeAway(copy);
}

Status ResidencyTable::BeginUseHome(uint32_t row) {
  return Apply(row, E::kUseHome);
}

Status ResidencyTable::BeginUseCopy(uint32_t row) {
  return Apply(row, E::kUseCopy);
}

void ResidencyTable::EndUseHome(uint32_t row) {
  MAREA_CHECK(rows_[row].home_readers > 0, "a read of the home ends that did not begin");
  --rows_[row].home_readers;
}

void ResidencyTable::EndUseCopy(uint32_t row) {
  MAREA_CHECK(rows_[row].copy_readers > 0, "a read of a copy ends that did not begin");
  --rows_[row].copy_readers;
}

Status ResidencyTable::BeginChangeHome(uint32_t row) {
  return Apply(row, E::kChangeHome);
}

Status ResidencyTable::BeginProduceHome(uint32_t row) {
  return Apply(row, E::kProduceHome);
}

void ResidencyTable::EndChangeHome(uint32_t row, bool ok) {
  MAREA_CHECK(rows_[row].state == R::kHomeChanging, "a change of the home ends that did not begin");
  Must(row, ok ? E::kChanged : E::kChangeFailed);
}

Status ResidencyTable::BeginChangeCopy(uint32_t row) {
  return Apply(row, E::kChangeCopy);
}

Status ResidencyTable::BeginProduceCopy(uint32_t row, Lease& copy) {
  const bool has_lease = static_cast<bool>(copy);
  MAREA_RETURN_IF_ERROR(Apply(row, E::kProduceCopy, has_lease));
  if (!has_lease) copy = Lease(this, row);
  return Status::Ok();
}

void ResidencyTable::EndChangeCopy(uint32_t row, Lease& copy, bool ok) {
  MAREA_CHECK(rows_[row].state == R::kCopyChanging, "a change of a copy ends that did not begin");
  Must(row, ok ? E::kChanged : E::kChangeFailed);
  if (ok) return;
  --rows_[row].copies;
  TakeAway(copy);
}

Status ResidencyTable::BeginWriteBack(uint32_t row) {
  return Apply(row, E::kWriteBack);
}

void ResidencyTable::EndWriteBack(uint32_t row, bool ok) {
  Must(row, ok ? E::kWritten : E::kWriteFailed);
}

Status ResidencyTable::CheckIdle() const {
  for (const Row& row : rows_) {
    const bool counts_zero = row.copies == 0 && row.filling == 0 && row.home_readers == 0 &&
                             row.copy_readers == 0 && row.leases == 0;
    if (counts_zero && (row.state == R::kEmpty || row.state == R::kHome)) continue;
    return Status::Failed(
        fmt::format("{} is {} at the end, with {} copies, {} fills, {} + {} readers and {} leases",
                    Describe(row.id), ResidencyName(row.state), row.copies, row.filling,
                    row.home_readers, row.copy_readers, row.leases));
  }
  return Status::Ok();
}

}  // namespace marea
