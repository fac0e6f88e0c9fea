#include "src/bench/page_stamps.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

#include "io/units.h"

namespace marea {
namespace {

struct PageStamp {
  uint64_t place;
  uint64_t generation;
  uint64_t check;
};
static_assert(sizeof(PageStamp) == 24);

constexpr uint64_t kBodyBytes = kPageBytes - sizeof(PageStamp);
constexpr uint32_t kFileShift = 48;  // pages of a file need fewer bits

PageStamp ReadStamp(const std::byte* page) {
  PageStamp stamp;
  std::memcpy(&stamp, page, sizeof(stamp));
  return stamp;
}

// Never 0, so that a hole is no page's stamp.
uint64_t PlaceOf(uint32_t file, uint64_t page_index) {
  return (uint64_t{file} + 1) << kFileShift | page_index;
}

// Odd constants, so that no two places, and no two generations of one, mix to the same.
uint64_t Mix(uint64_t place, uint64_t generation) {
  return place * 0x9e3779b97f4a7c15 + generation * 0xbf58476d1ce4e5b9;
}

uint64_t BodyHash(const std::byte* page) {
  return XXH3_64bits(page + sizeof(PageStamp), kBodyBytes);
}

}  // namespace

void FillRandomPages(std::span<std::byte> memory, uint64_t seed) {
  MAREA_CHECK(memory.size() % kPageBytes == 0, "memory is not whole pages");
  uint64_t state = Mix(seed, 1) | 1;
  for (size_t at = 0; at < memory.size(); at += sizeof(state)) {
    state ^= state << 13;  // Marsaglia's xorshift
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(memory.data() + at, &state, sizeof(state));
  }
  for (size_t at = 0; at < memory.size(); at += kPageBytes) {
    std::byte* const page = memory.data() + at;
    const PageStamp stamp{UINT64_MAX, 0, BodyHash(page) ^ Mix(UINT64_MAX, 0)};
    std::memcpy(page, &stamp, sizeof(stamp));
  }
}

PageStamps::PageStamps(uint32_t file, uint64_t file_bytes)
    : file_(file), generations_(file_bytes / kPageBytes) {}

void PageStamps::Stamp(std::span<std::byte> memory, uint64_t offset) {
  MAREA_CHECK(memory.size() % kPageBytes == 0 && offset % kPageBytes == 0, "not whole pages");
  constexpr size_t kAhead = 8 * kPageBytes;
  uint64_t index = offset / kPageBytes;
  for (size_t at = 0; at < memory.size(); at += kPageBytes, ++index) {
    std::byte* const page = memory.data() + at;
    // Stamps are a page apart, which no processor foresees by itself. Not farther ahead: all of
    // them fall into one set of the first cache.
    if (at + kAhead < memory.size()) __builtin_prefetch(page + kAhead, 1);
    const PageStamp old = ReadStamp(page);
    PageStamp stamp{PlaceOf(file_, index), ++generations_[index], 0};
    stamp.check = old.check ^ Mix(old.place, old.generation) ^ Mix(stamp.place, stamp.generation);
    std::memcpy(page, &stamp, sizeof(stamp));
  }
}

Status PageStamps::VerifyPage(const std::byte* page, uint64_t page_index, VerifyDepth depth,
                              const std::string& path) const {
  const PageStamp stamp = ReadStamp(page);
  const uint64_t place = PlaceOf(file_, page_index);
  const char* wrong = nullptr;
  if (stamp.place != place) {
    wrong = stamp.place == 0 && stamp.check == 0 ? "holds zeros, as a hole does"
                                                 : "holds the bytes of another place";
  } else if (stamp.generation != generations_[page_index]) {
    wrong = "holds older bytes than were written last";
  } else if (depth == VerifyDepth::kBodies &&
             stamp.check != (BodyHash(page) ^ Mix(stamp.place, stamp.generation))) {
    wrong = "does not match its checksum";
  }
  if (wrong == nullptr) return Status::Ok();
  return Status::Corrupt(
      fmt::format("{}: the page at offset {} {}: do not trust this drive, its "
                  "file system or its cable",
                  path, page_index * kPageBytes, wrong));
}

Status PageStamps::Verify(std::span<const std::byte> memory, uint64_t offset, VerifyDepth depth,
                          const std::string& path) const {
  const size_t end = depth == VerifyDepth::kBodies ? memory.size() : kPageBytes;
  for (size_t at = 0; at < end; at += kPageBytes) {
    MAREA_RETURN_IF_ERROR(VerifyPage(memory.data() + at, (offset + at) / kPageBytes, depth, path));
  }
  return Status::Ok();
}

}  // namespace marea
