#include "src/launch/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

namespace marea {
namespace {

constexpr std::string_view kSlots = "slots=";

std::vector<std::string> WordsOf(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// 0 where `word` is no "slots=N" of a sensible N.
uint32_t SlotsOf(const std::string& word) {
  if (word.rfind(kSlots, 0) != 0) return 0;
  uint32_t slots = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data() + kSlots.size(), end, slots);
  return error == std::errc() && stop == end && slots <= kRanksOfHostMax ? slots : 0;
}

}  // namespace

Result<std::vector<Host>> ParseHostfile(const std::string& path, std::string_view text) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::vector<std::string> words = WordsOf(line);
    if (words.empty()) continue;
    const uint32_t slots = words.size() == 2 ? SlotsOf(words[1]) : 0;
    if (slots == 0) {
      return Status::InvalidArgument(
          fmt::format("{}, line {}: '{}' is not of the form \"HOST slots=N\" with N from 1 to {}",
                      path, number, line, kRanksOfHostMax));
    }
    const bool known = std::any_of(hosts.begin(), hosts.end(),
                                   [&](const Host& host) { return host.name == words[0]; });
    if (known) {
      return Status::InvalidArgument(
          fmt::format("{}, line {}: {} is named before: give each host one line with all its slots",
                      path, number, words[0]));
    }
    hosts.push_back({words[0], slots});
  }
  if (hosts.empty()) {
    return Status::InvalidArgument(
        fmt::format("{} names no host: write a line \"HOST slots=N\" for each", path));
  }
  return hosts;
}

Result<std::vector<Host>> ReadHostfile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    return Status::InvalidArgument(
        fmt::format("--hostfile {} cannot be read: {}", path, std::strerror(errno)));
  }
  return ParseHostfile(path, text.str());
}

}  // namespace marea
