// metrics.jsonl: one line a step, on disk as soon as the step has ended.
//
// A line leaves in one write, so a reader that follows the file, or a process that dies, sees whole
// lines. Owner: the training run. Thread rule: one thread at a time.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "engine/report/step_metrics.h"
#include "io/status.h"

namespace marea {

class MetricsWriter {
 public:
  // Touches nothing: the file of an earlier run stays whole until the first line of this one.
  explicit MetricsWriter(std::string path) : path_(std::move(path)) {}

  // The first call replaces the file, later ones append. Io names the path. Blocks on the write.
  Status Append(const StepMetrics& metrics);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace marea
