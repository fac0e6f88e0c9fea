// How a run is seen while it trains: on a terminal one line that is rewritten, in a log plain
// lines, not too many.
//
// Owner: the command. Thread rule: the thread that runs (see TrainingObserver).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/plan/plan_text.h"
#include "engine/report/step_metrics.h"
#include "engine/train/training_run.h"

namespace marea {

// What a line is measured against.
struct ProgressFrame {
  uint64_t steps = 0;            // of the whole run
  TierBytes budget_bytes{};      // by Tier
  uint64_t nvme_used_bytes = 0;  // fixed for the whole run
};

// How much a line says; each leaves out more than the one before.
enum class LineDetail : uint8_t {
  kFull,  // "step 3/40 | loss 5.1234 | ...", bandwidth over the step, and in busy time in brackets
  kNoBusy,    // without the brackets
  kNoLimits,  // without the tiers' budgets
  kTerse,     // "step 3/40 loss 5.1234 ...": without the GPU's link, separators and long words
};
inline constexpr int kLineDetailCount = 4;

// Loss, speed, time left, each tier's use and bandwidth (its lanes' bytes over the step's time).
std::string StepLine(const StepMetrics& metrics, const ProgressFrame& frame, double seconds_left,
                     LineDetail detail);

// "1h 02m", "3m 20s", "12 s".
std::string DurationText(double seconds);

class ProgressPrinter : public TrainingObserver {
 public:
  explicit ProgressPrinter(const ProgressFrame& frame);
  // Ends the line that is being rewritten.
  ~ProgressPrinter() override;

  void OnPhase(const std::string& phase, uint64_t done_bytes, uint64_t total_bytes) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnWarning(const std::string& sentence) override;
  void OnNotice(const std::string& sentence) override;

 private:
  using Clock = std::chrono::steady_clock;

  // Prints a line, or, on a terminal, rewrites the one that is there.
  void Show(const std::string& line);
  void EndLine();
  double SecondsLeft(const StepMetrics& metrics);

  const ProgressFrame frame_;
  const bool terminal_;
  bool line_open_ = false;  // the cursor stands behind a line that will be rewritten
  Clock::time_point shown_at_{};
  std::string phase_;
  double step_seconds_ = 0;  // smoothed; 0: none yet
};

}  // namespace marea
