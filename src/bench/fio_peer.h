// fio beside us: the same file, block size, depth and path through the kernel (io_uring with fixed
// buffers and registered files, O_DIRECT), run by its own program where it is installed.
//
// Thread rule: pure functions, but for RunFio, which blocks until fio has ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/status.h"
#include "src/bench/bench_session.h"

namespace marea {

struct FioJob {
  std::string program;    // from FindFio
  std::string file_name;  // of an existing file
  uint64_t file_bytes = 0;
  WorkloadKind kind = WorkloadKind::kRead;
  BenchShape shape;
  double warm_up_seconds = 0;  // dropped, as marea drops them: a drive that rested may burst
  double seconds = 0;
  bool huge_pages = false;  // its buffers, from those that the machine has reserved
};

// Whether the machine has reserved enough huge pages for fio's buffers. marea's own lie in
// transparent ones, fio's only in reserved ones; a request in ordinary pages has many segments,
// which costs processor time and, on drives that take few, bandwidth.
bool HugePagesFor(const BenchShape& shape);

struct FioFigure {
  double bytes_per_second = 0;
  double cpu_core_ms_per_gb = 0;
};

// Where fio is, by PATH. InvalidArgument says how to get it.
Result<std::string> FindFio();

// fio's words, the program first. Its buffers are written as they are: by default fio changes them
// for every request, which is what marea counts apart, as the cost of its data. REQUIRES: job.kind
// is not kReplay.
std::vector<std::string> FioArguments(const FioJob& job);

// fio's own JSON, with whatever notes it prints before it. Failed if it holds no figure.
Result<FioFigure> ParseFioOutput(const std::string& text);

// Failed with fio's own words if it fails.
Result<FioFigure> RunFio(const FioJob& job);

// Alternating runs of one workload, and what comes of them.
struct FioComparison {
  WorkloadKind kind = WorkloadKind::kRead;
  BenchShape shape;
  bool fio_huge_pages = false;
  std::vector<double> marea_rates;  // bytes a second, run by run
  std::vector<double> fio_rates;
  std::vector<double> marea_cpu;  // core-ms per GB
  std::vector<double> fio_cpu;

  double ratio() const;  // of the medians: marea / fio
};

double Median(std::vector<double> values);  // 0 of none

}  // namespace marea
