// The tokens of a data set: one long sequence, mapped read-only from files.
//
// What `--data` may name:
//   - a file ending in `.bin`: little-endian uint16 token ids;
//   - any other file: UTF-8 text, one token a byte (ids 0 to 255);
//   - a folder: every regular file under it that is UTF-8 text, in the order of their paths,
//     joined as bytes. Hidden entries (".git") and files with a NUL byte are not text. Links to
//     files are followed, links to folders are not.
//
// Owner: the Dataset. Thread rule: after Open, const calls from any thread. The files must not be
// truncated while they are mapped. Pages that were read are given back to the kernel at once, so
// that the data set does not count against the memory budget of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/status.h"

namespace marea {

class TokenSource {
 public:
  // Opens, maps and reads everything once: text is checked to be UTF-8. InvalidArgument if the path
  // is missing or unreadable, a named file is not UTF-8 (with the offset), a .bin has an odd size,
  // or a folder holds no text. Blocks for one pass over the files.
  static Result<std::unique_ptr<TokenSource>> Open(const std::string& path);
  ~TokenSource();
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  uint64_t tokens() const { return tokens_; }
  uint64_t bytes() const { return tokens_ * token_bytes_; }
  uint32_t token_bytes() const { return token_bytes_; }  // 1 text, 2 .bin
  const std::string& path() const { return path_; }
  // What was left out of a folder; empty when nothing was.
  const std::string& notice() const { return notice_; }

  // Copies tokens [first, first + count) as int32. REQUIRES: the range lies within tokens(). Blocks
  // on page faults only.
  void Read(uint64_t first, uint64_t count, int32_t* out) const;

  // First position in [0, limit) whose token is >= vocabulary, or `limit` if there is none. One
  // pass. REQUIRES: limit <= tokens().
  uint64_t FindAtLeast(uint32_t vocabulary, uint64_t limit) const;

 private:
  struct Mapping {
    const std::byte* data;
    uint64_t bytes;
    uint64_t first_byte;  // in the joined sequence
  };

  TokenSource(std::string path, uint32_t token_bytes);
  // Maps `file` as the next part; an empty file adds nothing.
  Status Append(const std::string& file);
  Status AppendFolder();
  static void GiveBack(const std::byte* data, uint64_t bytes);

  std::string path_;
  uint32_t token_bytes_;
  uint64_t tokens_ = 0;
  std::string notice_;
  std::vector<Mapping> mappings_;  // ascending first_byte, no gaps
};

}  // namespace marea
