#include "io/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace marea {
namespace {

struct Unit {
  std::string_view name;  // lower case
  uint64_t bytes;
};

constexpr uint64_t kKilo = 1000;
constexpr std::array kUnits = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"k", kKiB},
    Unit{"kib", kKiB},
    Unit{"kb", kKilo},
    Unit{"m", kMiB},
    Unit{"mib", kMiB},
    Unit{"mb", kKilo* kKilo},
    Unit{"g", kGiB},
    Unit{"gib", kGiB},
    Unit{"gb", kKilo* kKilo* kKilo},
    Unit{"t", kKiB* kGiB},
    Unit{"tib", kKiB* kGiB},
    Unit{"tb", kKilo* kKilo* kKilo* kKilo},
    Unit{"p", kMiB* kGiB},
    Unit{"pib", kMiB* kGiB},
    Unit{"pb", kKilo* kKilo* kKilo* kKilo* kKilo},
};

Status BadSize(std::string_view text, std::string_view why) {
  return Status::InvalidArgument(fmt::format(
      "\"{}\" is not a size ({}): write it like 8GiB (or 8G), 1.5GiB, 500MB or 4096", text, why));
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

const Unit* FindUnit(std::string_view text) {
  std::string lower;
  for (char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Unit& unit : kUnits) {
    if (unit.name == lower) return &unit;
  }
  return nullptr;
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  if (trimmed.empty()) return BadSize(text, "it is empty");
  if (trimmed.front() == '-') return BadSize(text, "it is negative");
  if (!std::isdigit(static_cast<unsigned char>(trimmed.front())) && trimmed.front() != '.') {
    return BadSize(text, "it does not start with a number");
  }
  const char* const end = trimmed.data() + trimmed.size();
  double value = 0;
  const auto parsed = std::from_chars(trimmed.data(), end, value);
  if (parsed.ec == std::errc::result_out_of_range) return BadSize(text, "it is too large");
  if (parsed.ec != std::errc()) return BadSize(text, "it does not start with a number");
  const std::string_view number(trimmed.data(), static_cast<size_t>(parsed.ptr - trimmed.data()));
  const Unit* const unit =
      FindUnit(Trim(std::string_view(parsed.ptr, static_cast<size_t>(end - parsed.ptr))));
  if (unit == nullptr) return BadSize(text, "its unit is unknown");

  // Whole numbers do not go through a double, which is exact only up to 2^53.
  uint64_t whole = 0;
  const auto exact = std::from_chars(number.data(), number.data() + number.size(), whole);
  if (exact.ptr == number.data() + number.size()) {
    uint64_t bytes = 0;
    if (exact.ec != std::errc() || __builtin_mul_overflow(whole, unit->bytes, &bytes)) {
      return BadSize(text, "it is too large");
    }
    return bytes;
  }
  const long double bytes = static_cast<long double>(value) * unit->bytes;
  if (bytes >= 18446744073709551615.0L) return BadSize(text, "it is too large");
  if (unit->bytes == 1 && bytes != std::floor(bytes)) return BadSize(text, "bytes are whole");
  return static_cast<uint64_t>(std::round(bytes));  // 1.2 is no double: 1.2PB would lose a byte
}

namespace {

// Three significant digits of a value below the next unit; whole numbers above 100.
std::string ThreeDigits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / kKiB;
  size_t unit = 0;
  while (std::round(value) >= kKiB && unit + 1 < kNames.size()) {
    value /= kKiB;
    ++unit;
  }
  return fmt::format("{} {}", ThreeDigits(value), kNames[unit]);
}

std::string FormatRate(double bytes_per_second) {
  if (!std::isfinite(bytes_per_second) || bytes_per_second < 0) return "unknown rate";
  if (bytes_per_second < kKilo) return fmt::format("{:.0f} B/s", bytes_per_second);
  constexpr std::array kNames = {"kB/s", "MB/s", "GB/s", "TB/s"};
  double value = bytes_per_second / kKilo;
  size_t unit = 0;
  while (std::round(value) >= kKilo && unit + 1 < kNames.size()) {
    value /= kKilo;
    ++unit;
  }
  return fmt::format("{} {}", ThreeDigits(value), kNames[unit]);
}

}  // namespace marea
