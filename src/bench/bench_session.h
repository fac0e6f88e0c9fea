// A benchmark of some paths: the files under test, and measurements on them.
//
// A file is made, its name removed at once (so that however the program ends, none is left), and
// written whole with stamped pages before anything is measured.
//
// Owner and thread rule: the command, one thread. Everything blocks for as long as its figure
// takes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/block_device.h"
#include "io/pinned_arena.h"
#include "io/status.h"
#include "src/bench/drive_checks.h"
#include "src/bench/io_bench.h"
#include "src/bench/replay.h"
#include "src/bench/workload.h"

namespace marea {

struct BenchShape {
  uint64_t block_bytes = 0;
  uint32_t queue_depth = 0;
};

struct BenchResult {
  WorkloadKind kind;
  std::vector<std::string> paths;
  BenchShape shape;
  Measurement measured;
  IoModeReport mode;
  double link_bytes_per_second = 0;  // of all paths together; 0 if one is not known
  std::vector<std::string> warnings;

  double bytes_per_second() const;
  double read_bytes_per_second() const;
  double write_bytes_per_second() const;
  double cpu_core_ms_per_gb() const;   // of the I/O
  double data_core_ms_per_gb() const;  // of making and checking the data
};

// What a measurement of so many seconds drops at its start.
double WarmUpSeconds(double seconds);

struct BenchOptions {
  std::vector<std::string> folders;
  std::vector<uint64_t> file_bytes;  // by folder, whole pages
  double seconds = 5;
  std::optional<IoMode> mode;
};

class BenchSession {
 public:
  // `step(text, bytes)` announces what the watch's progress counts from then on; bytes 0: unknown.
  using Announce = std::function<void(const std::string& step, uint64_t bytes)>;

  // Checks the paths (InvalidArgument before anything is written), makes the files and fills them
  // at `shape`.
  static Result<std::unique_ptr<BenchSession>> Open(const BenchOptions& options,
                                                    const BenchShape& shape, RunWatch watch,
                                                    Announce announce);
  ~BenchSession();

  const std::vector<PathFacts>& paths() const { return facts_; }
  // Of path `index`; open for as long as the session lives.
  int fd(size_t index) const { return files_[index]->file.fd(); }
  uint64_t file_bytes(size_t index) const { return files_[index]->file.bytes(); }

  // One path, or all of them side by side, each with its own ring and thread.
  Result<BenchResult> Measure(WorkloadKind kind, const BenchShape& shape,
                              std::optional<size_t> only_path, double seconds);
  // Whole steps of a plan, at least one and for at least the session's seconds, on one ring over
  // all paths.
  Result<BenchResult> MeasureReplay(const Replay& replay, const BenchShape& shape);

  // Writes every page of all files anew (after somebody else has written there).
  Status Refill(const BenchShape& shape);
  // Reads every page of all files and compares all of it with what was written last.
  Status VerifyAll(const BenchShape& shape);

 private:
  struct Rig;

  BenchSession(const BenchOptions& options, RunWatch watch, Announce announce);
  Status MakeFiles();
  Status WholePass(WorkloadKind kind, const BenchShape& shape, const char* what);
  Result<std::unique_ptr<BlockDevice>> MakeDevice(std::span<const size_t> paths,
                                                  std::span<std::byte> memory,
                                                  const BenchShape& shape, size_t capacity);
  Result<std::span<std::byte>> Memory(size_t index, uint64_t bytes);
  Status AddPath(size_t path, WorkloadKind kind, const BenchShape& shape, VerifyDepth verify,
                 Rig* rig);
  Result<BenchResult> Run(WorkloadKind kind, const BenchShape& shape, const RunLimit& limit,
                          Rig* rig);
  void AddWarnings(const Rig& rig, const std::vector<std::optional<DriveTraffic>>& before,
                   BenchResult* result) const;

  const BenchOptions options_;
  const RunWatch watch_;
  const Announce announce_;
  std::vector<PathFacts> facts_;
  std::vector<std::unique_ptr<BenchFile>> files_;
  std::vector<std::optional<PinnedArena>> arenas_;  // by path, grown when needed
};

}  // namespace marea
