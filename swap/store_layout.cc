#include "swap/store_layout.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/check.h"

namespace marea {
namespace {

uint64_t SlotBytes(const ChunkEntry& entry) {
  return RoundUp(entry.id.bytes, kPageBytes);
}

// What a path has been dealt so far.
struct Share {
  uint64_t bytes = kStoreDataOffset;
  uint64_t slot0_bytes = 0;
  std::array<uint64_t, kShardKindCount> kind_bytes{};
  std::vector<uint32_t> chunks;
};

// The path that would be least ahead of its weight with `bytes` more of this kind, or path count if
// none has room. Kinds are moved at different times and not equally often, so each is shared by
// itself: dealt as one, kinds whose sizes come in a pattern would each keep to one path.
size_t NextPath(std::span<const StorePath> paths, const std::vector<Share>& shares, uint64_t bytes,
                size_t kind) {
  size_t best = paths.size();
  std::pair<double, double> best_load;
  for (size_t p = 0; p < paths.size(); ++p) {
    const uint64_t after = shares[p].bytes + bytes;
    if (after > paths[p].bytes_max) continue;
    const std::pair load{static_cast<double>(shares[p].kind_bytes[kind] + bytes) / paths[p].weight,
                         static_cast<double>(after) / paths[p].weight};
    if (best == paths.size() || load < best_load) {
      best = p;
      best_load = load;
    }
  }
  return best;
}

PathLayout Place(const StorePath& path, const Share& share, const ChunkTable& table,
                 uint32_t slots) {
  PathLayout layout;
  layout.path = path.path;
  layout.file_bytes = share.bytes;
  uint64_t first = kStoreDataOffset;
  uint64_t second = kStoreDataOffset + share.slot0_bytes;
  for (const uint32_t chunk : share.chunks) {
    const ChunkEntry& entry = table.entries[chunk];
    ChunkHome home{.chunk = chunk,
                   .slot_count = ChunkSlotCount(entry, slots),
                   .slot_offset = {first, 0},
                   .bytes = entry.id.bytes};
    first += SlotBytes(entry);
    if (home.slot_count == 2) {
      home.slot_offset[1] = second;
      second += SlotBytes(entry);
    }
    layout.homes.push_back(home);
  }
  MAREA_CHECK(second == layout.file_bytes, "slots and file end together");
  return layout;
}

// LayOutStore with these weights and no others.
Result<StoreLayout> Deal(const ChunkTable& table, std::span<const StorePath> paths,
                         uint32_t slots) {
  std::vector<Share> shares(paths.size());
  uint64_t allowed = 0;
  for (const StorePath& path : paths) {
    allowed += path.bytes_max;
  }
  StoreLayout layout;
  layout.slots = slots;
  layout.path_of_chunk.resize(table.entries.size());
  layout.local_of_chunk.resize(table.entries.size());
  for (uint32_t chunk = 0; chunk < table.entries.size(); ++chunk) {
    const ChunkEntry& entry = table.entries[chunk];
    const uint64_t bytes = ChunkFileBytes(entry, slots);
    const auto kind = static_cast<size_t>(entry.id.kind);
    const size_t path = NextPath(paths, shares, bytes, kind);
    if (path == paths.size()) {
      const uint64_t needed =
          StoreFileBytes(table, slots, static_cast<uint32_t>(std::max<size_t>(1, paths.size())));
      return Status::DoesNotFit(fmt::format(
          "NVMe must hold {} ({} slot{}), but {} path{} allow {}; {} finds no room: raise the size "
          "in --nvme PATH:SIZE, add a path{}",
          FormatBytes(needed), slots, slots == 1 ? "" : "s", paths.size(),
          paths.size() == 1 ? "" : "s", FormatBytes(allowed), Describe(entry.id),
          slots == 2 ? ", or give up crash resume with --slots 1" : ""));
    }
    Share& share = shares[path];
    layout.path_of_chunk[chunk] = static_cast<uint32_t>(path);
    layout.local_of_chunk[chunk] = static_cast<uint32_t>(share.chunks.size());
    share.chunks.push_back(chunk);
    share.bytes += bytes;
    share.kind_bytes[kind] += bytes;
    share.slot0_bytes += SlotBytes(entry);
  }
  for (size_t p = 0; p < paths.size(); ++p) {
    layout.paths.push_back(Place(paths[p], shares[p], table, slots));
  }
  return layout;
}

}  // namespace

uint32_t ChunkSlotCount(const ChunkEntry& entry, uint32_t slots) {
  return entry.updated && SurvivesCommit(entry.id.kind) ? slots : 1;
}

uint64_t ChunkFileBytes(const ChunkEntry& entry, uint32_t slots) {
  return SlotBytes(entry) * ChunkSlotCount(entry, slots);
}

uint64_t StoreFileBytes(const ChunkTable& table, uint32_t slots, uint32_t path_count) {
  uint64_t bytes = path_count * kStoreDataOffset;
  for (const ChunkEntry& entry : table.entries) bytes += ChunkFileBytes(entry, slots);
  return bytes;
}

Result<StoreLayout> LayOutStore(const ChunkTable& table, std::span<const StorePath> paths,
                                uint32_t slots) {
  MAREA_CHECK(slots == 1 || slots == 2, "a store has one slot or two");
  std::vector<StorePath> equal(paths.begin(), paths.end());
  bool by_weight = false;
  for (StorePath& path : equal) {
    MAREA_CHECK(path.weight > 0, "a path's weight is positive");
    by_weight = by_weight || path.weight != paths[0].weight;
    path.weight = 1;
  }
  Result<StoreLayout> layout = Deal(table, paths, slots);
  // Weights are measured and differ from run to run; whether a run fits must not.
  if (layout.ok() || !by_weight) return layout;
  return Deal(table, equal, slots);
}

uint64_t LayoutHash(const PathLayout& layout, const ChunkTable& table) {
  // Numbers, not structs: padding bytes have no value.
  std::vector<uint64_t> numbers;
  for (const ChunkHome& home : layout.homes) {
    const ShardChunk& id = table.entries[home.chunk].id;
    numbers.insert(numbers.end(),
                   {static_cast<uint64_t>(id.kind), id.group, id.index, id.chunk, id.first_byte,
                    id.bytes, home.slot_count, home.slot_offset[0], home.slot_offset[1]});
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(uint64_t));
}

}  // namespace marea
