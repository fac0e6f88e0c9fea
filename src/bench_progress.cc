#include "src/bench_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "io/units.h"
#include "src/messages.h"

namespace marea {

BenchProgress::BenchProgress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

BenchProgress::~BenchProgress() {
  Clear();
}

void BenchProgress::Announce(const std::string& step, uint64_t bytes) {
  step_ = OneLine(step);
  step_bytes_ = bytes;
  if (bytes > 0) step_ += ", " + FormatBytes(bytes);
  if (terminal_) return Line(step_);
  fmt::print(stderr, "{}\n", step_);
}

void BenchProgress::Show(const RunProgress& progress) {
  if (!terminal_) return;
  std::string text = fmt::format("{}: {}", step_, FormatRate(progress.bytes_per_second));
  if (step_bytes_ > 0) {
    text += fmt::format(", {:.0f}%", 100.0 * static_cast<double>(progress.bytes) /
                                         static_cast<double>(step_bytes_));
  }
  Line(text);
}

void BenchProgress::Line(const std::string& text) {
  fmt::print(stderr, "\r{}\x1b[K", text.substr(0, 79));
  std::fflush(stderr);
  line_open_ = true;
}

void BenchProgress::Clear() {
  if (line_open_) fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  line_open_ = false;
}

}  // namespace marea
