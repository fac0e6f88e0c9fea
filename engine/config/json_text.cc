#include "engine/config/json_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <vector>

#include "io/units.h"

namespace marea {
namespace {

using nlohmann::json;

// Collects the first key that an object holds twice, while the parser walks the text.
class DuplicateKeys {
 public:
  bool operator()(int /*depth*/, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        open_.push_back({});
        break;
      case json::parse_event_t::object_end:
        open_.pop_back();
        break;
      case json::parse_event_t::key: {
        Level& level = open_.back();
        level.key = parsed.get<std::string>();
        if (!level.keys.insert(level.key).second && first_.empty()) first_ = Path();
        break;
      }
      default:
        break;
    }
    return true;
  }

  const std::string& first() const { return first_; }

 private:
  struct Level {
    std::set<std::string> keys;
    std::string key;  // the one whose value is being read
  };

  std::string Path() const {
    std::string path;
    for (const Level& level : open_) path += (path.empty() ? "" : ".") + level.key;
    return path;
  }

  std::vector<Level> open_;
  std::string first_;
};

// The library's message without its own name and position.
std::string WhatIsWrong(const json::exception& error) {
  std::string what = error.what();
  const size_t column = what.find("column ");
  const size_t start = column == std::string::npos ? what.find("] ") : what.find(": ", column);
  if (start != std::string::npos) what = what.substr(start + 2);
  constexpr size_t kLongest = 200;  // the text itself may be quoted
  if (what.size() > kLongest) what = what.substr(0, kLongest) + "...";
  return what;
}

std::string Place(const std::string& text, size_t byte) {
  // `byte` counts from 1 and may point one past the end.
  const size_t end = std::min(byte == 0 ? 0 : byte - 1, text.size());
  const size_t line = 1 + static_cast<size_t>(std::count(text.begin(), text.begin() + end, '\n'));
  const size_t newline = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const size_t column = newline == std::string::npos ? end + 1 : end - newline;
  return fmt::format("line {}, column {}", line, column);
}

}  // namespace

Result<json> ParseJsonText(const std::string& text, const std::string& origin) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Status::InvalidArgument(
        fmt::format("{} is empty, where a JSON object is needed", origin));
  }
  DuplicateKeys duplicates;
  try {
    json parsed = json::parse(text, std::ref(duplicates));
    if (!duplicates.first().empty()) {
      return Status::InvalidArgument(fmt::format(
          "{}: the key \"{}\" appears twice; keep one of them", origin, duplicates.first()));
    }
    return parsed;
  } catch (const json::parse_error& error) {
    return Status::InvalidArgument(fmt::format("{}, {}: not valid JSON: {}", origin,
                                               Place(text, error.byte), WhatIsWrong(error)));
  } catch (const json::exception& error) {  // a number beyond the range of a double
    return Status::InvalidArgument(
        fmt::format("{}: not valid JSON: {}", origin, WhatIsWrong(error)));
  }
}

Result<std::string> ReadSmallFile(const std::string& path, uint64_t bytes_max) {
  // O_NONBLOCK: opening a pipe must not hang.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return Status::Errno(ErrorCode::kInvalidArgument, fmt::format("cannot open {}", path), errno);
  }
  struct stat info;
  Status status = Status::Ok();
  std::string text;
  if (fstat(fd, &info) != 0) {
    status = Status::Io(fmt::format("cannot stat {}", path), errno);
  } else if (!S_ISREG(info.st_mode)) {
    status = Status::InvalidArgument(fmt::format("{} is not a file", path));
  } else if (static_cast<uint64_t>(info.st_size) > bytes_max) {
    status = Status::InvalidArgument(
        fmt::format("{} has {}, more than the {} that such a file may have", path,
                    FormatBytes(info.st_size), FormatBytes(bytes_max)));
  } else {
    text.resize(static_cast<size_t>(info.st_size));
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t got = read(fd, text.data() + done, text.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) status = Status::Io(fmt::format("cannot read {}", path), errno);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    text.resize(done);
  }
  close(fd);
  if (!status.ok()) return status;
  return text;
}

}  // namespace marea
