#include "src/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "io/units.h"
#include "src/messages.h"

namespace marea {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval(100);
constexpr std::chrono::seconds kLogInterval(5);
// A run of so few steps prints each of them in a log.
constexpr uint64_t kShortRunSteps = 20;
// Weight of the newest step in the smoothed time of a step.
constexpr double kSmoothing = 0.2;

// ", read 1.20 GB/s (2.31 GB/s busy)": what a lane moved; nothing if it moved nothing.
std::string BandwidthText(const char* what, const StepMetrics& metrics, Lane lane,
                          LineDetail detail) {
  const LaneStats& stats = metrics.lanes[static_cast<int>(lane)];
  if (stats.bytes == 0 || metrics.step_seconds <= 0) return "";
  const double bytes = static_cast<double>(stats.bytes);
  const std::string rate = FormatRate(bytes / metrics.step_seconds);
  if (detail == LineDetail::kTerse) return fmt::format(" {} {}", what[0], rate);
  std::string text = fmt::format(", {} {}", what, rate);
  if (detail == LineDetail::kFull && stats.busy_seconds > 0) {
    text += fmt::format(" ({} busy)", FormatRate(bytes / stats.busy_seconds));
  }
  return text;
}

size_t TerminalColumns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

std::string DurationText(double seconds) {
  const auto whole = static_cast<uint64_t>(std::max(0.0, seconds) + 0.5);
  if (whole >= 3600) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

std::string StepLine(const StepMetrics& metrics, const ProgressFrame& frame, double seconds_left,
                     LineDetail detail) {
  const bool terse = detail == LineDetail::kTerse;
  const char* separator = terse ? " " : " | ";
  const auto use = [&](Tier tier, uint64_t bytes) {
    std::string text = fmt::format("{}{} {}", separator, TierName(tier), FormatBytes(bytes));
    if (detail <= LineDetail::kNoBusy) {
      text += fmt::format("/{}", FormatBytes(frame.budget_bytes[static_cast<int>(tier)]));
    }
    return text;
  };
  const double tokens_per_second =
      metrics.step_seconds > 0 ? static_cast<double>(metrics.tokens) / metrics.step_seconds : 0;
  std::string line =
      fmt::format("step {}/{}{}loss {:.4f}", metrics.step, frame.steps, separator, metrics.loss);
  if (metrics.eval_loss) line += fmt::format(" (evaluation {:.4f})", *metrics.eval_loss);
  line += fmt::format("{0}{1:.0f} {2}{0}{3} left", separator, tokens_per_second,
                      terse ? "tok/s" : "tokens/s", DurationText(seconds_left));
  line += use(Tier::kVram, metrics.vram_peak_bytes);
  if (!terse) {
    line += BandwidthText("in", metrics, Lane::kH2d, detail);
    line += BandwidthText("out", metrics, Lane::kD2h, detail);
  }
  line += use(Tier::kRam, metrics.ram_peak_bytes);
  if (frame.nvme_used_bytes > 0) {
    line += use(Tier::kNvme, frame.nvme_used_bytes);
    line += BandwidthText("read", metrics, Lane::kNvmeRead, detail);
    line += BandwidthText("write", metrics, Lane::kNvmeWrite, detail);
  }
  return line;
}

ProgressPrinter::ProgressPrinter(const ProgressFrame& frame)
    : frame_(frame), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressPrinter::~ProgressPrinter() {
  EndLine();
}

void ProgressPrinter::OnPhase(const std::string& phase, uint64_t done_bytes, uint64_t total_bytes) {
  const Clock::time_point now = Clock::now();
  const bool begins = phase != phase_;
  const bool ends = done_bytes >= total_bytes;
  if (terminal_) {
    if (!begins && !ends && now - shown_at_ < kTerminalInterval) return;
  } else if (!begins && now - shown_at_ < kLogInterval) {
    return;
  }
  phase_ = phase;
  shown_at_ = now;
  // A log has one line for a phase, and more only where it takes long.
  if (begins && !terminal_) return Show(fmt::format("{}: {}", phase, FormatBytes(total_bytes)));
  const double share =
      total_bytes == 0 ? 100.0
                       : 100.0 * static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
  Show(fmt::format("{}: {:.0f}% of {}", phase, share, FormatBytes(total_bytes)));
}

void ProgressPrinter::OnStep(const StepMetrics& metrics) {
  const double seconds_left = SecondsLeft(metrics);
  const Clock::time_point now = Clock::now();
  const bool always = metrics.step == 1 || metrics.step == frame_.steps ||
                      metrics.eval_loss.has_value() ||
                      (!terminal_ && frame_.steps <= kShortRunSteps);
  const auto interval =
      terminal_ ? Clock::duration(kTerminalInterval) : Clock::duration(kLogInterval);
  phase_.clear();
  if (!always && now - shown_at_ < interval) return;
  shown_at_ = now;
  std::string line;
  // A terminal gets the fullest line that it has room for.
  for (int detail = 0; detail < kLineDetailCount; ++detail) {
    line = StepLine(metrics, frame_, seconds_left, static_cast<LineDetail>(detail));
    if (!terminal_ || line.size() < TerminalColumns()) break;
  }
  Show(line);
}

void ProgressPrinter::OnWarning(const std::string& sentence) {
  EndLine();
  PrintWarning(sentence);
}

void ProgressPrinter::OnNotice(const std::string& sentence) {
  EndLine();
  PrintNote(sentence);
}

// The first step warms up: it tells only until there is a second.
double ProgressPrinter::SecondsLeft(const StepMetrics& metrics) {
  step_seconds_ = metrics.step <= 2
                      ? metrics.step_seconds
                      : step_seconds_ + kSmoothing * (metrics.step_seconds - step_seconds_);
  return step_seconds_ * static_cast<double>(frame_.steps - std::min(frame_.steps, metrics.step));
}

void ProgressPrinter::Show(const std::string& line) {
  if (!terminal_) {
    fmt::print(stderr, "{}\n", line);
    return;
  }
  const std::string fitting = line.substr(0, TerminalColumns() - 1);
  fmt::print(stderr, "\r{}\x1b[K", fitting);
  std::fflush(stderr);
  line_open_ = true;
}

void ProgressPrinter::EndLine() {
  if (line_open_) fmt::print(stderr, "\n");
  line_open_ = false;
}

}  // namespace marea
