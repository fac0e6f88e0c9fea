#include "swap/access_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "io/check.h"

namespace marea {
namespace {

using Shard = std::tuple<ShardKind, uint32_t, uint32_t>;  // kind, group, use

Shard ShardOf(const Content& content) {
  return {content.kind, content.group, content.index};
}

// An access in the bytes of its shard.
struct ShardRange {
  uint64_t begin;
  uint64_t end;
};
ShardRange RangeOf(const Buffer& buffer, const Access& access) {
  const uint64_t begin = buffer.content.first_byte + access.offset;
  return {begin, begin + access.bytes};
}

bool IsTransfer(OpKind kind) {
  return kind == OpKind::kRead || kind == OpKind::kWrite || kind == OpKind::kCopyIn ||
         kind == OpKind::kCopyOut;
}

TouchKind EngineTouch(bool home, AccessMode mode) {
  switch (mode) {
    case AccessMode::kRead:
      return home ? TouchKind::kUseHome : TouchKind::kUseCopy;
    case AccessMode::kWrite:
      return home ? TouchKind::kProduceHome : TouchKind::kProduceCopy;
    case AccessMode::kReadWrite:
      break;
  }
  return home ? TouchKind::kChangeHome : TouchKind::kChangeCopy;
}

class Builder {
 public:
  explicit Builder(const StepPlan& plan) : plan_(plan) {}

  AccessMap Build() {
    CutRows();
    FindRemoteRows();
    map_.touches.resize(plan_.ops.size());
    for (uint32_t op = 0; op < plan_.ops.size(); ++op) {
      if (IsTransfer(plan_.ops[op].kind)) {
        TouchTransfer(op);
      } else if (plan_.ops[op].kind == OpKind::kGather) {
        TouchGather(op);
      } else {
        TouchEngine(op);
      }
      NoteUsers(op);
    }
    return std::move(map_);
  }

 private:
  bool Tracked(const Access& access) const {
    return IsTracked(plan_.buffers[access.buffer].content.kind);
  }
  bool IsHome(const Access& access) const { return plan_.buffers[access.buffer].ring == kHomeRing; }

  // Rows: the ranges between neighbouring access ends that some access covers.
  void CutRows() {
    std::map<Shard, std::map<uint64_t, int>>
        ends;  // by byte: accesses that begin less those that end
    for (const Op& op : plan_.ops) {
      for (const Access& access : op.accesses) {
        if (!Tracked(access)) continue;
        const Buffer& buffer = plan_.buffers[access.buffer];
        const ShardRange range = RangeOf(buffer, access);
        auto& shard = ends[ShardOf(buffer.content)];
        ++shard[range.begin];
        --shard[range.end];
      }
    }
    for (const auto& [shard, cuts] : ends) {
      const auto first = static_cast<uint32_t>(map_.rows.size());
      int depth = 0;
      for (auto it = cuts.begin(); it != cuts.end(); ++it) {
        depth += it->second;
        const auto next = std::next(it);
        if (depth == 0 || next == cuts.end()) continue;
        ResidencyTable::Row row;
        row.id = {.kind = std::get<0>(shard),
                  .group = std::get<1>(shard),
                  .index = std::get<2>(shard),
                  .chunk = static_cast<uint32_t>(map_.rows.size()) - first,
                  .first_byte = it->first,
                  .bytes = next->first - it->first};
        map_.rows.push_back(row);
      }
      rows_of_[shard] = {first, static_cast<uint32_t>(map_.rows.size())};
    }
    map_.homes.resize(map_.rows.size());
  }

  // Weights whose home is on another rank rest there all the time; a gather fetches them.
  void FindRemoteRows() {
    std::map<Shard, ShardRange> owned;
    for (const Buffer& buffer : plan_.buffers) {
      if (buffer.ring != kHomeRing || buffer.content.kind != ShardKind::kWeight) continue;
      const uint64_t begin = buffer.content.first_byte;
      owned[ShardOf(buffer.content)] = {begin, begin + buffer.bytes};
    }
    for (ResidencyTable::Row& row : map_.rows) {
      const auto it = owned.find({row.id.kind, row.id.group, row.id.index});
      if (it == owned.end()) continue;
      if (row.id.first_byte >= it->second.begin && row.id.first_byte < it->second.end) continue;
      row.has_home = true;
      row.state = Residency::kHome;
    }
  }

  // The rows that an access covers, as a half-open range.
  std::pair<uint32_t, uint32_t> RowsOf(const Access& access) const {
    const Buffer& buffer = plan_.buffers[access.buffer];
    const ShardRange range = RangeOf(buffer, access);
    const std::pair<uint32_t, uint32_t> rows = rows_of_.at(ShardOf(buffer.content));
    const auto at = [&](uint64_t byte) {
      const auto it =
          std::lower_bound(map_.rows.begin() + rows.first, map_.rows.begin() + rows.second, byte,
                           [](const ResidencyTable::Row& row, uint64_t wanted) {
                             return row.id.first_byte < wanted;
                           });
      return static_cast<uint32_t>(it - map_.rows.begin());
    };
    return {at(range.begin), at(range.end)};
  }

  void NoteHome(const Access& access, uint32_t row) {
    const Buffer& buffer = plan_.buffers[access.buffer];
    HomePlace& home = map_.homes[row];
    const uint64_t offset = map_.rows[row].id.first_byte - buffer.content.first_byte;
    if (home.buffer != kNone && (home.buffer != access.buffer || home.offset != offset)) {
      const std::string message = fmt::format("{} has two homes", Describe(map_.rows[row].id));
      MAREA_CHECK(false, message.c_str());
    }
    home = {.buffer = access.buffer, .offset = offset};
    map_.rows[row].has_home = true;
  }

  uint32_t CopyOf(const Access& access, uint32_t row) {
    const auto [it, is_new] = copy_of_.emplace(std::pair(access.buffer, row), map_.copies.size());
    if (is_new) map_.copies.push_back({.row = row, .buffer = access.buffer, .ops = {}});
    return it->second;
  }

  // The place of an access's row: kNone for the home, which is noted.
  uint32_t PlaceOf(const Access& access, uint32_t row) {
    if (!IsHome(access)) return CopyOf(access, row);
    NoteHome(access, row);
    return kNone;
  }

  void TouchTransfer(uint32_t op_index) {
    const Op& op = plan_.ops[op_index];
    MAREA_CHECK(op.accesses.size() == 2 && op.accesses[0].bytes == op.accesses[1].bytes,
                "a transfer has a source and a destination of equal size");
    const Access& source = op.accesses[0];
    const Access& destination = op.accesses[1];
    if (!Tracked(source) && !Tracked(destination)) return;
    const std::string message = "source and destination differ: " + Describe(plan_, op);
    MAREA_CHECK(Tracked(source) && Tracked(destination), message.c_str());
    const Buffer& from = plan_.buffers[source.buffer];
    const Buffer& to = plan_.buffers[destination.buffer];
    MAREA_CHECK(ShardOf(from.content) == ShardOf(to.content) &&
                    RangeOf(from, source).begin == RangeOf(to, destination).begin,
                message.c_str());
    const auto [first, end] = RowsOf(source);
    for (uint32_t row = first; row < end; ++row) {
      const uint32_t from_place = PlaceOf(source, row);
      const uint32_t to_place = PlaceOf(destination, row);
      Touch touch{.kind = TouchKind::kFetch, .row = row, .copy = to_place};
      if (from_place != kNone) {
        touch.kind = to_place == kNone ? TouchKind::kWriteBack : TouchKind::kSpread;
        touch.source_copy = from_place;
      } else {
        MAREA_CHECK(to_place != kNone, message.c_str());
      }
      map_.touches[op_index].push_back(touch);
    }
  }

  // This rank's part comes from its home, or is in its place already; the others' parts come from
  // their home on another rank, or replace what this rank holds of them.
  void TouchGather(uint32_t op_index) {
    const Op& op = plan_.ops[op_index];
    const Access& own = op.accesses[0];
    const Access& whole = op.accesses[1];
    const auto own_rows = RowsOf(own);
    const auto [first, end] = RowsOf(whole);
    for (uint32_t row = first; row < end; ++row) {
      const bool mine = row >= own_rows.first && row < own_rows.second;
      const bool remote = map_.rows[row].state == Residency::kHome;
      Touch touch{.kind = TouchKind::kFetch, .row = row};
      if (mine && own.buffer == whole.buffer) {
        touch.copy = PlaceOf(own, row);
        touch.kind = touch.copy == kNone ? TouchKind::kUseHome : TouchKind::kUseCopy;
      } else if (mine || remote) {
        if (mine) NoteHome(own, row);
        touch.copy = CopyOf(whole, row);
      } else {
        touch.copy = PlaceOf(whole, row);
        touch.kind = touch.copy == kNone ? TouchKind::kProduceHome : TouchKind::kProduceCopy;
      }
      map_.touches[op_index].push_back(touch);
    }
  }

  void TouchEngine(uint32_t op_index) {
    const Op& op = plan_.ops[op_index];
    // An op may name a range twice (tied weights): one touch, in the stronger mode.
    std::map<std::pair<uint32_t, uint32_t>, AccessMode> modes;  // by row, place
    for (const Access& access : op.accesses) {
      if (!Tracked(access)) continue;
      const auto [first, end] = RowsOf(access);
      for (uint32_t row = first; row < end; ++row) {
        const auto [it, is_new] = modes.emplace(std::pair(row, PlaceOf(access, row)), access.mode);
        it->second =
            static_cast<AccessMode>(static_cast<int>(it->second) | static_cast<int>(access.mode));
      }
    }
    std::vector<Touch>& touches = map_.touches[op_index];
    for (const auto& [where, mode] : modes) {
      touches.push_back({.kind = EngineTouch(where.second == kNone, mode),
                         .row = where.first,
                         .copy = where.second});
    }
    std::stable_sort(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) {
      return a.kind < b.kind;  // uses come before changes in the enum
    });
  }

  void NoteUsers(uint32_t op_index) {
    for (const Touch& touch : map_.touches[op_index]) {
      for (const uint32_t copy : {touch.copy, touch.source_copy}) {
        if (copy != kNone) map_.copies[copy].ops.push_back(op_index);
      }
    }
  }

  const StepPlan& plan_;
  AccessMap map_;
  std::map<Shard, std::pair<uint32_t, uint32_t>> rows_of_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> copy_of_;  // by buffer, row
};

}  // namespace

AccessMap MakeAccessMap(const StepPlan& plan) {
  return Builder(plan).Build();
}

}  // namespace marea
