#include "swap/superblock.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>

#include "io/check.h"

namespace marea {
namespace {

static_assert(std::endian::native == std::endian::little, "superblocks are little-endian");

uint64_t ChecksumOf(const Superblock& superblock) {
  return XXH3_64bits(&superblock, offsetof(Superblock, checksum));
}

Superblock Load(std::span<const std::byte, kPageBytes> page) {
  Superblock superblock;
  std::memcpy(&superblock, page.data(), sizeof superblock);
  return superblock;
}

Status Differs(const std::string& path, const char* what, uint64_t found, uint64_t wanted) {
  return Status::Corrupt(fmt::format(
      "{}: of other geometry: {} is {} in the file and {} in this run; use the settings "
      "of the run that made it, or remove it",
      path, what, found, wanted));
}

}  // namespace

const char* SuperblockVerdictName(SuperblockVerdict verdict) {
  switch (verdict) {
    case SuperblockVerdict::kValid:
      return "valid";
    case SuperblockVerdict::kEmpty:
      return "empty";
    case SuperblockVerdict::kForeign:
      return "foreign";
    case SuperblockVerdict::kOtherVersion:
      return "of another version";
    case SuperblockVerdict::kHalfWritten:
      return "half-written";
  }
  return "unknown";
}

Superblock MakeSuperblock(const RunUuid& run_uuid, const StoreGeometry& geometry) {
  Superblock superblock;
  std::memset(&superblock, 0, sizeof superblock);
  superblock.magic = kSuperblockMagic;
  superblock.version = kSuperblockVersion;
  superblock.page_bytes = geometry.page_bytes;
  superblock.run_uuid = run_uuid;
  superblock.slots = geometry.slots;
  superblock.path_index = geometry.path_index;
  superblock.path_count = geometry.path_count;
  superblock.chunk_count = geometry.chunk_count;
  superblock.file_bytes = geometry.file_bytes;
  superblock.layout_hash = geometry.layout_hash;
  return superblock;
}

void Seal(Superblock& superblock, uint64_t epoch) {
  superblock.epoch = epoch;
  superblock.checksum = ChecksumOf(superblock);
}

StoreGeometry GeometryOf(const Superblock& superblock) {
  return {.page_bytes = superblock.page_bytes,
          .slots = superblock.slots,
          .path_index = superblock.path_index,
          .path_count = superblock.path_count,
          .chunk_count = superblock.chunk_count,
          .file_bytes = superblock.file_bytes,
          .layout_hash = superblock.layout_hash};
}

SuperblockVerdict Judge(std::span<const std::byte, kPageBytes> page) {
  if (std::all_of(page.begin(), page.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return SuperblockVerdict::kEmpty;
  }
  const Superblock superblock = Load(page);
  if (superblock.magic != kSuperblockMagic) return SuperblockVerdict::kForeign;
  if (superblock.checksum != ChecksumOf(superblock)) {
    // Version 1 fixes where the checksum lies; a later version may move it, so an unknown version
    // whose checksum does not match is of another version rather than torn.
    return superblock.version == kSuperblockVersion ? SuperblockVerdict::kHalfWritten
                                                    : SuperblockVerdict::kOtherVersion;
  }
  return superblock.version == kSuperblockVersion ? SuperblockVerdict::kValid
                                                  : SuperblockVerdict::kOtherVersion;
}

Result<Superblock> ReadSuperblock(std::span<const std::byte, 2 * kPageBytes> pages,
                                  const std::string& path) {
  const std::array copies = {pages.first<kPageBytes>(), pages.last<kPageBytes>()};
  const std::array verdicts = {Judge(copies[0]), Judge(copies[1])};
  std::optional<Superblock> newest;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (verdicts[i] != SuperblockVerdict::kValid) continue;
    const Superblock candidate = Load(copies[i]);
    if (!newest || candidate.epoch > newest->epoch) newest = candidate;
  }
  if (newest) return *newest;
  const auto any = [&](SuperblockVerdict verdict) {
    return verdicts[0] == verdict || verdicts[1] == verdict;
  };
  if (any(SuperblockVerdict::kHalfWritten)) {
    return Status::Corrupt(path +
                           ": half-written: its superblock does not match its checksum, and there "
                           "is no older copy; remove the file and start again");
  }
  if (any(SuperblockVerdict::kOtherVersion)) {
    const size_t copy = verdicts[0] == SuperblockVerdict::kOtherVersion ? 0 : 1;
    return Status::Corrupt(fmt::format(
        "{}: of another version: format {}, this program reads {}; use the program that "
        "made it, or remove the file",
        path, Load(copies[copy]).version, kSuperblockVersion));
  }
  if (any(SuperblockVerdict::kForeign)) {
    return Status::Corrupt(path +
                           ": foreign: it does not begin as a marea store does; name another path");
  }
  return Status::Corrupt(path +
                         ": half-written: it has no superblock, so its creation did not finish; "
                         "remove the file and start again");
}

Status CheckSuperblock(const Superblock& found, const RunUuid& run_uuid,
                       const StoreGeometry& geometry, const std::string& path) {
  if (found.run_uuid != run_uuid) {
    return Status::Corrupt(
        fmt::format("{}: foreign: it belongs to run {}, this is run {}; name the paths of one run",
                    path, FormatUuid(found.run_uuid), FormatUuid(run_uuid)));
  }
  const StoreGeometry other = GeometryOf(found);
  const std::tuple<const char*, uint64_t, uint64_t> fields[] = {
      {"page size", other.page_bytes, geometry.page_bytes},
      {"the number of slots", other.slots, geometry.slots},
      {"the position of the path", other.path_index, geometry.path_index},
      {"the number of paths", other.path_count, geometry.path_count},
      {"the number of chunks", other.chunk_count, geometry.chunk_count},
      {"the file's size", other.file_bytes, geometry.file_bytes},
      {"the layout's hash", other.layout_hash, geometry.layout_hash},
  };
  for (const auto& [what, is, wanted] : fields) {
    if (is != wanted) return Differs(path, what, is, wanted);
  }
  return Status::Ok();
}

Result<RunUuid> MakeRunUuid() {
  RunUuid uuid;
  if (getrandom(uuid.data(), uuid.size(), 0) != static_cast<ssize_t>(uuid.size())) {
    return Status::Io("cannot read random bytes for the run's id", errno);
  }
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x40);  // version 4: random
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);  // variant of RFC 9562
  return uuid;
}

std::string FormatUuid(const RunUuid& uuid) {
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

}  // namespace marea
