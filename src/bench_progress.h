// How a benchmark is seen while it works: on a terminal one line that is rewritten, in a log a line
// for each measurement.
//
// Owner: the command. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "src/bench/io_bench.h"

namespace marea {

class BenchProgress {
 public:
  BenchProgress();
  // Ends the line that is being rewritten.
  ~BenchProgress();

  // What is done from now on; bytes 0: not known beforehand.
  void Announce(const std::string& step, uint64_t bytes);
  void Show(const RunProgress& progress);
  // Clears the line that is being rewritten.
  void Clear();

 private:
  void Line(const std::string& text);

  const bool terminal_;
  bool line_open_ = false;
  std::string step_;
  uint64_t step_bytes_ = 0;
};

}  // namespace marea
