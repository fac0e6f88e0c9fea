// What the benchmark writes: bytes that neither compress nor repeat, and that say of themselves
// where they belong.
//
// A page of 4 KiB begins with a stamp; the rest is its body, taken from a random stream:
//
//   place       8 B   file and page, so that a misdirected transfer is seen
//   generation  8 B   which write of this page it was, so that a lost write is seen
//   check       8 B   XXH3-64 of the body, mixed with place and generation
//
// As the check holds the body's hash, a page that was read can be stamped anew for another place
// without reading its body again: a write of the benchmark touches one cache line a page.
//
// Thread rule: pure functions; PageStamps belongs to one file and one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/status.h"

namespace marea {

// How much of what was read is looked at.
enum class VerifyDepth : uint8_t {
  kStamps,  // the first page's stamp: place and generation
  kBodies,  // every page whole
};

// Makes `memory` whole pages with valid stamps of no place. REQUIRES: whole pages.
void FillRandomPages(std::span<std::byte> memory, uint64_t seed);

// The generations of one file's pages, as last written.
class PageStamps {
 public:
  PageStamps(uint32_t file, uint64_t file_bytes);

  // Stamps `memory` for a write to `offset`. REQUIRES: memory holds valid pages (filled, or read
  // and found right), whole pages within the file.
  void Stamp(std::span<std::byte> memory, uint64_t offset);

  // Corrupt says which page of `path` is wrong and how, for bytes read from `offset`.
  Status Verify(std::span<const std::byte> memory, uint64_t offset, VerifyDepth depth,
                const std::string& path) const;

 private:
  Status VerifyPage(const std::byte* page, uint64_t page_index, VerifyDepth depth,
                    const std::string& path) const;

  const uint32_t file_;
  std::vector<uint32_t> generations_;  // by page; 0: never written
};

}  // namespace marea
