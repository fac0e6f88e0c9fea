// Where every chunk lies on the drives: a pure function of the chunk table and the paths.
//
// Each path holds one file: two superblock pages, then slot 0 of every chunk of that path in table
// order, then slot 1 of those that have one. After a commit all updates move to the other slot, so
// both regions are read and written in sequence. Chunks are dealt to paths in proportion to their
// weights, each kind by itself and all along the table: what is fetched together comes from all of
// them. See docs/file-format.md.
//
// Plain values; any thread may read them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/status.h"
#include "io/units.h"
#include "swap/chunk_table.h"

namespace marea {

// Superblock copies are in pages 0 and 1; the even epochs use the first.
inline constexpr uint64_t kSuperblockCopies = 2;
inline constexpr uint64_t kStoreDataOffset = kSuperblockCopies * kPageBytes;

struct StorePath {
  std::string path;        // as the user wrote it; used in messages
  uint64_t bytes_max = 0;  // the file never exceeds this
  double weight = 1.0;     // its share of the bytes: its speed, measured at the start; > 0
};

// A chunk's place within its path's file. Offsets are multiples of kPageBytes.
struct ChunkHome {
  uint32_t chunk;                       // index into the chunk table
  uint32_t slot_count;                  // 1 or 2
  std::array<uint64_t, 2> slot_offset;  // [1] is unused if slot_count is 1
  uint64_t bytes;                       // the chunk's own length; a slot is rounded up to pages
};

// One path's file.
struct PathLayout {
  std::string path;
  uint64_t file_bytes = 0;  // superblocks and all slots
  std::vector<ChunkHome> homes;
};

struct StoreLayout {
  uint32_t slots = 1;
  std::vector<PathLayout> paths;         // a path with no chunks has file_bytes of superblocks only
  std::vector<uint32_t> path_of_chunk;   // by table index
  std::vector<uint32_t> local_of_chunk;  // by table index: position in homes of its path
};

// How many slots a chunk gets when the store has `slots`: what is never written after the start, or
// need not survive a crash, has one.
uint32_t ChunkSlotCount(const ChunkEntry& entry, uint32_t slots);

// Bytes that a chunk takes on a drive, all slots.
uint64_t ChunkFileBytes(const ChunkEntry& entry, uint32_t slots);

// Bytes that the whole table takes on `path_count` drives, superblocks included.
uint64_t StoreFileBytes(const ChunkTable& table, uint32_t slots, uint32_t path_count);

// A path that is full leaves the rest to the others, whatever its weight; where sizes are so tight
// that shares by weight find no room, equal shares are tried. REQUIRES: slots is 1 or 2, weights >
// 0. DoesNotFit names the bytes needed and those allowed.
Result<StoreLayout> LayOutStore(const ChunkTable& table, std::span<const StorePath> paths,
                                uint32_t slots);

// Identifies a path's placement of its chunks: two layouts that differ in any offset differ here.
uint64_t LayoutHash(const PathLayout& layout, const ChunkTable& table);

}  // namespace marea
