#include "engine/data/token_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/data/utf8.h"
#include "io/units.h"

namespace marea {
namespace {

static_assert(std::endian::native == std::endian::little, "a .bin file is little-endian");

// A pass over the data gives pages back in pieces of this size.
constexpr uint64_t kPassBytes = 16 * kMiB;

enum class TextCheck : uint8_t { kText, kHasNul, kNotUtf8 };

struct TextVerdict {
  TextCheck check;
  uint64_t bad_offset;
};

// One pass over a mapping in order. `visit(data, bytes)` returns false to stop.
template <typename Visit>
void ForEachPiece(const std::byte* data, uint64_t bytes, Visit visit) {
  (void)madvise(const_cast<std::byte*>(data), bytes, MADV_SEQUENTIAL);
  for (uint64_t at = 0; at < bytes; at += kPassBytes) {
    const uint64_t piece = std::min(kPassBytes, bytes - at);
    const bool go_on = visit(data + at, piece);
    (void)madvise(const_cast<std::byte*>(data + at), piece, MADV_DONTNEED);
    if (!go_on) break;
  }
  (void)madvise(const_cast<std::byte*>(data), bytes, MADV_RANDOM);
}

TextVerdict CheckText(const std::byte* data, uint64_t bytes) {
  Utf8Checker checker;
  bool ok = true;
  ForEachPiece(data, bytes, [&](const std::byte* piece, uint64_t piece_bytes) {
    ok = checker.Add({piece, piece_bytes});
    return ok;
  });
  if (!ok || !checker.Finish()) return {TextCheck::kNotUtf8, checker.bad_offset()};
  return {checker.has_nul() ? TextCheck::kHasNul : TextCheck::kText, 0};
}

}  // namespace

// Gives back the whole pages that hold the range. They are clean copies of the file: the page cache
// keeps them, this process no longer counts them.
void TokenSource::GiveBack(const std::byte* data, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = address / kPageBytes * kPageBytes;
  const uintptr_t end = RoundUp(address + bytes, kPageBytes);
  (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);  // a hint only
}

TokenSource::TokenSource(std::string path, uint32_t token_bytes)
    : path_(std::move(path)), token_bytes_(token_bytes) {}

TokenSource::~TokenSource() {
  for (const Mapping& mapping : mappings_) {
    munmap(const_cast<std::byte*>(mapping.data), mapping.bytes);
  }
}

Status TokenSource::Append(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not hang
  if (fd < 0) {
    return Status::Errno(ErrorCode::kInvalidArgument, fmt::format("cannot open data {}", file),
                         errno);
  }
  struct stat info;
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const uint64_t bytes = regular ? static_cast<uint64_t>(info.st_size) : 0;
  void* data = nullptr;
  int error = 0;
  if (bytes > 0) {
    data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    error = data == MAP_FAILED ? errno : 0;
  }
  close(fd);
  if (!regular) {
    return Status::InvalidArgument(fmt::format("data {} is neither a file nor a folder", file));
  }
  if (error == ENOMEM) {
    return Status::Errno(
        ErrorCode::kInvalidArgument,
        fmt::format("cannot map data {} after {} other files; join them into fewer", file,
                    mappings_.size()),
        error);
  }
  if (error != 0) return Status::Io(fmt::format("cannot map data {}", file), error);
  if (bytes == 0) return Status::Ok();
  const uint64_t first =
      mappings_.empty() ? 0 : mappings_.back().first_byte + mappings_.back().bytes;
  // Samples are read in random order; reading ahead would only fill memory.
  (void)madvise(data, bytes, MADV_RANDOM);
  mappings_.push_back({static_cast<const std::byte*>(data), bytes, first});
  tokens_ = (first + bytes) / token_bytes_;
  return Status::Ok();
}

Status TokenSource::AppendFolder() {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(path_, error), end;
  for (; !error && it != end; it.increment(error)) {
    const bool hidden = it->path().filename().native().starts_with('.');
    std::error_code ignored;  // a link to nowhere is no file
    if (hidden && it->is_directory(ignored)) it.disable_recursion_pending();
    if (!hidden && it->is_regular_file(ignored)) files.push_back(it->path().native());
  }
  if (error) {
    return Status::Errno(ErrorCode::kInvalidArgument, fmt::format("cannot read folder {}", path_),
                         error.value());
  }
  std::sort(files.begin(), files.end());
  uint64_t left_out = 0;
  std::string first_left_out;
  for (const std::string& file : files) {
    const size_t before = mappings_.size();
    MAREA_RETURN_IF_ERROR(Append(file));
    if (mappings_.size() == before) continue;  // empty
    const Mapping last = mappings_.back();
    if (CheckText(last.data, last.bytes).check == TextCheck::kText) continue;
    munmap(const_cast<std::byte*>(last.data), last.bytes);
    mappings_.pop_back();
    tokens_ = last.first_byte;
    if (left_out++ == 0) first_left_out = file;
  }
  if (mappings_.empty()) {
    return Status::InvalidArgument(fmt::format(
        "folder {} holds no text: its {} files are empty or not UTF-8; name a folder of "
        "text, or a .bin of uint16 tokens",
        path_, files.size()));
  }
  if (left_out > 0) {
    notice_ = fmt::format("{}: left out {} of {} files that are not UTF-8 text, the first is {}",
                          path_, left_out, files.size(), first_left_out);
  }
  return Status::Ok();
}

Result<std::unique_ptr<TokenSource>> TokenSource::Open(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return Status::Errno(ErrorCode::kInvalidArgument, fmt::format("cannot open data {}", path),
                         errno);
  }
  const bool binary = path.ends_with(".bin") && !S_ISDIR(info.st_mode);
  std::unique_ptr<TokenSource> source(new TokenSource(path, binary ? 2 : 1));
  if (S_ISDIR(info.st_mode)) {
    MAREA_RETURN_IF_ERROR(source->AppendFolder());
    return source;
  }
  MAREA_RETURN_IF_ERROR(source->Append(path));
  if (source->mappings_.empty()) {
    return Status::InvalidArgument(fmt::format("data {} is empty", path));
  }
  const Mapping& mapping = source->mappings_.front();
  if (binary && mapping.bytes % 2 != 0) {
    return Status::InvalidArgument(fmt::format(
        "data {} has {} bytes, which is no whole number of uint16 tokens", path, mapping.bytes));
  }
  if (binary) return source;
  const TextVerdict verdict = CheckText(mapping.data, mapping.bytes);
  if (verdict.check == TextCheck::kNotUtf8) {
    return Status::InvalidArgument(
        fmt::format("data {} is not UTF-8 text (at byte {}); for uint16 tokens, name the file .bin",
                    path, verdict.bad_offset));
  }
  return source;
}

void TokenSource::Read(uint64_t first, uint64_t count, int32_t* out) const {
  MAREA_CHECK(first <= tokens_ && count <= tokens_ - first, "tokens beyond the end of the data");
  uint64_t at = first * token_bytes_;
  uint64_t left = count * token_bytes_;
  auto mapping =
      std::upper_bound(mappings_.begin(), mappings_.end(), at,
                       [](uint64_t byte, const Mapping& m) { return byte < m.first_byte; });
  for (--mapping; left > 0; ++mapping) {
    const std::byte* from = mapping->data + (at - mapping->first_byte);
    const uint64_t bytes = std::min(left, mapping->first_byte + mapping->bytes - at);
    for (uint64_t i = 0; i < bytes; i += token_bytes_) {
      uint16_t token = static_cast<uint8_t>(from[i]);
      if (token_bytes_ == 2) std::memcpy(&token, from + i, sizeof(token));
      *out++ = token;
    }
    GiveBack(from, bytes);
    at += bytes;
    left -= bytes;
  }
}

uint64_t TokenSource::FindAtLeast(uint32_t vocabulary, uint64_t limit) const {
  MAREA_CHECK(limit <= tokens_, "tokens beyond the end of the data");
  const uint64_t ids = token_bytes_ == 1 ? 256 : 65536;
  if (vocabulary >= ids) return limit;
  uint64_t found = limit;
  for (const Mapping& mapping : mappings_) {
    const uint64_t first = mapping.first_byte / token_bytes_;
    if (first >= found) break;
    uint64_t position = first;
    ForEachPiece(mapping.data, mapping.bytes, [&](const std::byte* piece, uint64_t bytes) {
      for (uint64_t i = 0; i < bytes && position < limit; i += token_bytes_, ++position) {
        uint16_t token = static_cast<uint8_t>(piece[i]);
        if (token_bytes_ == 2) std::memcpy(&token, piece + i, sizeof(token));
        if (token >= vocabulary) {
          found = position;
          return false;
        }
      }
      return position < limit;
    });
    if (found < limit) break;
  }
  return found;
}

}  // namespace marea
