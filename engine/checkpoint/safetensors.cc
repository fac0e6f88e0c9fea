#include "engine/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/checkpoint/float_convert.h"
#include "engine/config/json_text.h"
#include "io/units.h"

namespace marea {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr std::string_view kLfsPointer = "version https://git-lfs";

// Bits of an element, as the format names types; 0 for one that is not known.
uint32_t TypeBits(std::string_view name) {
  constexpr std::pair<std::string_view, uint32_t> kTypes[] = {
      {"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64},    {"F32", 32},
      {"I32", 32},    {"U32", 32},    {"F16", 16},    {"BF16", 16},   {"I16", 16},
      {"U16", 16},    {"BOOL", 8},    {"I8", 8},      {"U8", 8},      {"F8_E4M3", 8},
      {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
  };
  for (const auto& [type, bits] : kTypes) {
    if (type == name) return bits;
  }
  return 0;
}

TensorType TypeOf(std::string_view name) {
  if (name == "F32") return TensorType::kFp32;
  if (name == "BF16") return TensorType::kBf16;
  if (name == "F16") return TensorType::kFp16;
  return TensorType::kOther;
}

// One tensor's entry. Returns what is wrong with it, or an empty text.
std::string ParseEntry(const json& value, uint64_t data_offset, TensorEntry& entry) {
  if (!value.is_object()) return "it is no object";
  const auto type = value.find("dtype");
  const auto shape = value.find("shape");
  const auto offsets = value.find("data_offsets");
  if (type == value.end() || !type->is_string()) return "it has no dtype";
  if (shape == value.end() || !shape->is_array()) return "it has no shape";
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return "its data_offsets are not two whole numbers";
  }
  entry.type_name = type->get<std::string>();
  entry.type = TypeOf(entry.type_name);
  const uint32_t bits = TypeBits(entry.type_name);
  if (bits == 0) return fmt::format("its dtype {} is not known", entry.type_name);
  entry.elements = 1;
  for (const json& dim : *shape) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > INT64_MAX) return "its shape is invalid";
    entry.dims.push_back(dim.get<int64_t>());
    if (__builtin_mul_overflow(entry.elements, dim.get<uint64_t>(), &entry.elements)) {
      return "its shape overflows";
    }
  }
  const uint64_t begin = (*offsets)[0].get<uint64_t>();
  const uint64_t end = (*offsets)[1].get<uint64_t>();
  if (begin > end) return "its data_offsets run backwards";
  entry.bytes = end - begin;
  const __uint128_t needed_bits = static_cast<__uint128_t>(entry.elements) * bits;
  if (needed_bits != static_cast<__uint128_t>(entry.bytes) * 8) {
    return fmt::format("its data_offsets span {} bytes, which its shape and dtype {} do not need",
                       entry.bytes, entry.type_name);
  }
  if (__builtin_add_overflow(data_offset, begin, &entry.offset)) return "its data_offsets overflow";
  return {};
}

}  // namespace

const char* TensorTypeName(TensorType type) {
  switch (type) {
    case TensorType::kFp32:
      return "F32";
    case TensorType::kBf16:
      return "BF16";
    case TensorType::kFp16:
      return "F16";
    case TensorType::kOther:
      break;
  }
  return "other";
}

uint64_t TensorTypeBytes(TensorType type) {
  MAREA_CHECK(type != TensorType::kOther, "a type whose size is not known here");
  return type == TensorType::kFp32 ? 4 : 2;
}

SafetensorsFile::SafetensorsFile(std::string path, int fd, uint64_t file_bytes)
    : path_(std::move(path)), fd_(fd), file_bytes_(file_bytes) {}

SafetensorsFile::~SafetensorsFile() {
  close(fd_);
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not hang
  if (fd < 0) {
    return Status::Errno(ErrorCode::kInvalidArgument, fmt::format("cannot open {}", path), errno);
  }
  struct stat info;
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  std::unique_ptr<SafetensorsFile> file(
      new SafetensorsFile(path, fd, regular ? static_cast<uint64_t>(info.st_size) : 0));
  if (!regular) return Status::InvalidArgument(fmt::format("{} is not a file", path));
  MAREA_RETURN_IF_ERROR(file->ReadHeader());
  return file;
}

Status SafetensorsFile::ReadBytesAt(uint64_t offset, uint64_t count, void* out) const {
  auto* to = static_cast<char*>(out);
  while (count > 0) {
    const ssize_t got = pread(fd_, to, std::min<uint64_t>(count, kGiB), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return Status::Io(fmt::format("cannot read {} at offset {}", path_, offset), errno);
    if (got == 0) {
      return Status::Corrupt(
          fmt::format("{} ends at offset {}, with {} bytes missing: it became "
                      "shorter while it was open",
                      path_, offset, count));
    }
    to += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<uint64_t>(got);
  }
  return Status::Ok();
}

Status SafetensorsFile::ReadHeader() {
  std::string start(std::min<uint64_t>(file_bytes_, kLfsPointer.size()), '\0');
  MAREA_RETURN_IF_ERROR(ReadBytesAt(0, start.size(), start.data()));
  if (start == kLfsPointer) {
    return Status::InvalidArgument(fmt::format(
        "{} is a Git LFS pointer, not the tensors themselves; fetch them with git lfs pull",
        path_));
  }
  if (file_bytes_ < kLengthBytes) {
    return Status::Corrupt(fmt::format(
        "{} has {} bytes, too few for a safetensors file; copy it again", path_, file_bytes_));
  }
  uint64_t length;
  std::memcpy(&length, start.data(), sizeof(length));
  if (length > kHeaderBytesMax) {
    return Status::InvalidArgument(
        fmt::format("{} is not a safetensors file: its header would have {} bytes", path_, length));
  }
  if (length > file_bytes_ - kLengthBytes) {
    return Status::Corrupt(
        fmt::format("{} is truncated: its header has {} bytes, the file {}; copy it again", path_,
                    length, file_bytes_));
  }
  std::string text(length, '\0');
  MAREA_RETURN_IF_ERROR(ReadBytesAt(kLengthBytes, length, text.data()));
  return ParseHeader(text, kLengthBytes + length);
}

Status SafetensorsFile::ParseHeader(const std::string& text, uint64_t data_offset) {
  if (!text.starts_with('{')) {
    return Status::InvalidArgument(
        fmt::format("{} is not a safetensors file: its header is no JSON object", path_));
  }
  MAREA_ASSIGN_OR_RETURN(const json header, ParseJsonText(text, path_ + " (header)"));
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") {
      if (!item.value().is_object()) {
        return Status::InvalidArgument(fmt::format("{}: its __metadata__ is no object", path_));
      }
      for (const auto& entry : item.value().items()) {
        if (entry.value().is_string()) metadata_[entry.key()] = entry.value().get<std::string>();
      }
      continue;
    }
    TensorEntry entry;
    entry.name = item.key();
    const std::string wrong = ParseEntry(item.value(), data_offset, entry);
    if (!wrong.empty()) {
      return Status::InvalidArgument(
          fmt::format("{}: tensor {} cannot be used: {}", path_, entry.name, wrong));
    }
    tensors_.push_back(std::move(entry));
  }
  // Empty tensors share an offset with their neighbours; names make the order definite.
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  return CheckLayout(data_offset);
}

Status SafetensorsFile::CheckLayout(uint64_t data_offset) {
  uint64_t at = data_offset;
  for (const TensorEntry& tensor : tensors_) {
    if (tensor.offset < at) {
      return Status::InvalidArgument(
          fmt::format("{}: tensor {} overlaps the one before it", path_, tensor.name));
    }
    if (tensor.offset > at) {
      return Status::InvalidArgument(
          fmt::format("{}: {} bytes before tensor {} belong to no tensor", path_,
                      tensor.offset - at, tensor.name));
    }
    if (tensor.bytes > file_bytes_ - at) {
      return Status::Corrupt(
          fmt::format("{} is truncated: tensor {} ends at byte {}, the file at {}; copy it again",
                      path_, tensor.name, __uint128_t{at} + tensor.bytes, file_bytes_));
    }
    at += tensor.bytes;
  }
  if (at < file_bytes_) {
    return Status::Corrupt(fmt::format(
        "{} has {} bytes after its last tensor; it was not written as a safetensors file", path_,
        file_bytes_ - at));
  }
  return Status::Ok();
}

const TensorEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status SafetensorsFile::ReadBytes(const TensorEntry& tensor, uint64_t first, uint64_t count,
                                  void* out) const {
  MAREA_CHECK(first <= tensor.bytes && count <= tensor.bytes - first, "bytes beyond a tensor");
  return ReadBytesAt(tensor.offset + first, count, out).WithContext("tensor " + tensor.name);
}

Status SafetensorsFile::ReadFloats(const TensorEntry& tensor, uint64_t first, uint64_t count,
                                   float* out) const {
  MAREA_CHECK(first <= tensor.elements && count <= tensor.elements - first,
              "elements beyond a tensor");
  if (tensor.type == TensorType::kFp32) return ReadBytes(tensor, first * 4, count * 4, out);
  // The halves are read into the upper end of `out` and widened from the lower: each value is taken
  // before its place is overwritten.
  auto* bytes = reinterpret_cast<std::byte*>(out);
  MAREA_RETURN_IF_ERROR(
      ReadBytes(tensor, first * TensorTypeBytes(tensor.type), count * 2, bytes + count * 2));
  for (uint64_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes + count * 2 + i * 2, sizeof(half));
    const float value =
        tensor.type == TensorType::kBf16 ? FloatFromBf16(half) : FloatFromFp16(half);
    std::memcpy(bytes + i * 4, &value, sizeof(value));
  }
  return Status::Ok();
}

}  // namespace marea
