#include "engine/report/metrics_writer.h"

#include <fmt/format.h>

#include <cerrno>

namespace marea {

Status MetricsWriter::Append(const StepMetrics& metrics) {
  if (!file_) {
    file_.reset(std::fopen(path_.c_str(), "we"));
    if (!file_) return Status::Io(fmt::format("cannot create {}", path_), errno);
  }
  const std::string line = ToJsonLine(metrics) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0) {
    return Status::Io(fmt::format("cannot write step {} to {}", metrics.step, path_), errno);
  }
  return Status::Ok();
}

}  // namespace marea
