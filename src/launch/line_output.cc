#include "src/launch/line_output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace marea {
namespace {

// A process that never ends its line must not fill memory: it is cut.
constexpr size_t kLineBytesMax = size_t{1} << 20;

}  // namespace

void LineSplitter::Emit(std::string& to) {
  to += prefix_;
  to += line_;
  to += '\n';
  line_.clear();
}

void LineSplitter::Feed(std::string_view bytes, std::string& to) {
  for (const char byte : bytes) {
    const bool second_end = byte == '\n' && after_return_;
    after_return_ = byte == '\r';
    if (second_end) continue;
    if (byte == '\n' || (byte == '\r' && !line_.empty())) {
      Emit(to);
    } else if (byte == '\r') {
      after_return_ = false;  // before any text it only moves the cursor; its \n is a line
    } else {
      line_ += byte;
      if (line_.size() == kLineBytesMax) Emit(to);
    }
  }
}

void LineSplitter::End(std::string& to) {
  if (!line_.empty()) Emit(to);
  after_return_ = false;
}

void OutputQueue::Pump() {
  if (text_.empty()) return;
  // A pipe that poll calls writable takes PIPE_BUF bytes without blocking.
  const size_t bytes = std::min<size_t>(text_.size(), PIPE_BUF);
  const ssize_t written =
      failed_ ? static_cast<ssize_t>(text_.size()) : write(fd_, text_.data(), bytes);
  if (written >= 0) {
    text_.erase(0, static_cast<size_t>(written));
  } else if (errno != EAGAIN && errno != EINTR) {
    failed_ = true;
    text_.clear();
  }
}

}  // namespace marea
