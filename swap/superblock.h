// The first two pages of a store file: what it is, whose it is, and which epoch it holds.
//
// Owner of the format: this header and docs/file-format.md. Little-endian, one page per copy. Copy
// (epoch % 2) holds an epoch, so the one before it survives a torn write; the newest valid copy
// counts. Each field names the failure it guards against.
//
// Pure functions on bytes; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/status.h"
#include "io/units.h"

namespace marea {

inline constexpr std::array<char, 8> kSuperblockMagic = {'M', 'A', 'R', 'E', 'A', 'S', 'B', '\n'};
inline constexpr uint32_t kSuperblockVersion = 1;

using RunUuid = std::array<uint8_t, 16>;

// What a run must agree on to use a file. Plain values.
struct StoreGeometry {
  uint32_t page_bytes = kPageBytes;
  uint32_t slots = 1;
  uint32_t path_index = 0;
  uint32_t path_count = 1;
  uint64_t chunk_count = 0;
  uint64_t file_bytes = 0;
  uint64_t layout_hash = 0;
  bool operator==(const StoreGeometry&) const = default;
};

// As it lies on the drive.
struct Superblock {
  std::array<char, 8> magic;  // a foreign file: not written by marea at all
  uint32_t version;           // a file of another version, whose other fields may mean other things
  uint32_t page_bytes;        // a layout made for another unit of alignment
  RunUuid run_uuid;           // a whole file of another run, or one path swapped for another run's
  uint32_t slots;             // one slot read as two: half the offsets would be wrong
  uint32_t path_index;        // paths given in another order
  uint32_t path_count;        // a path left out or added
  uint32_t reserved;          // zero
  uint64_t chunk_count;       // another model, chunk size or placement
  uint64_t file_bytes;        // a truncated or extended file
  uint64_t layout_hash;  // same counts, other places: XXH3-64 of every chunk's identity and offsets
  uint64_t epoch;        // which copy is newer; 0: created, never committed
  std::array<uint8_t, 4008> padding;  // zero: a page is written whole
  uint64_t checksum;                  // a half-written page: XXH3-64 of all bytes before it
};
static_assert(sizeof(Superblock) == kPageBytes);
static_assert(offsetof(Superblock, version) == 8);
static_assert(offsetof(Superblock, page_bytes) == 12);
static_assert(offsetof(Superblock, run_uuid) == 16);
static_assert(offsetof(Superblock, slots) == 32);
static_assert(offsetof(Superblock, path_index) == 36);
static_assert(offsetof(Superblock, path_count) == 40);
static_assert(offsetof(Superblock, chunk_count) == 48);
static_assert(offsetof(Superblock, file_bytes) == 56);
static_assert(offsetof(Superblock, layout_hash) == 64);
static_assert(offsetof(Superblock, epoch) == 72);
static_assert(offsetof(Superblock, padding) == 80);
static_assert(offsetof(Superblock, checksum) == 4088);

// What the bytes of one copy turn out to be.
enum class SuperblockVerdict : uint8_t {
  kValid,
  kEmpty,    // all zero: never written
  kForeign,  // no marea magic
  kOtherVersion,
  kHalfWritten,  // magic and version are right, the checksum is not
};
const char* SuperblockVerdictName(SuperblockVerdict verdict);

// A superblock without epoch and checksum; `Seal` completes it.
Superblock MakeSuperblock(const RunUuid& run_uuid, const StoreGeometry& geometry);
void Seal(Superblock& superblock, uint64_t epoch);
StoreGeometry GeometryOf(const Superblock& superblock);

SuperblockVerdict Judge(std::span<const std::byte, kPageBytes> page);

// The newest valid of both copies (the file's first two pages), or Corrupt: one sentence that says
// whether the file is foreign, of another version, or half-written, and names `path`.
Result<Superblock> ReadSuperblock(std::span<const std::byte, 2 * kPageBytes> pages,
                                  const std::string& path);

// Ok if the file belongs to this run and layout, else Corrupt naming the first field that differs,
// with both values.
Status CheckSuperblock(const Superblock& found, const RunUuid& run_uuid,
                       const StoreGeometry& geometry, const std::string& path);

// Random, from the kernel.
Result<RunUuid> MakeRunUuid();
std::string FormatUuid(const RunUuid& uuid);  // "8-4-4-4-12" hex digits

}  // namespace marea
