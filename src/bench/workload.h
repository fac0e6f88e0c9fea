// What a measurement reads and writes, in which order: pure decisions, no I/O.
//
// Owner and thread rule: one runner (io_bench.h) drives one workload on one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/block_device.h"
#include "io/status.h"

namespace marea {

enum class WorkloadKind : uint8_t { kRead, kWrite, kMixed, kRandomRead, kReplay };
inline constexpr int kWorkloadKindCount = 5;

const char* WorkloadName(WorkloadKind kind);  // "read", "write", "mixed", "random_read", "replay"
// Takes fio's names too ("rw", "randread"). InvalidArgument names `flag` and what it takes.
Result<WorkloadKind> ParseWorkload(const std::string& flag, const std::string& text);

bool Reads(WorkloadKind kind);
bool Writes(WorkloadKind kind);

struct BenchTransfer {
  IoDirection direction;
  uint32_t file;
  uint64_t offset;
  uint64_t bytes;  // whole pages
  uint64_t id;     // the workload's own
};

class Workload {
 public:
  virtual ~Workload() = default;

  // What may begin now. Nothing: not before another Done, or never again if ended().
  virtual std::optional<BenchTransfer> Next() = 0;
  virtual void Done(const BenchTransfer& transfer) = 0;
  // No round begins after the one that runs.
  virtual void EndAfterRound() = 0;
  virtual bool ended() const = 0;
  virtual uint64_t bytes_max() const = 0;  // of one transfer
};

// Rounds over a file in blocks, the last of which may be shorter; no two transfers of one block
// are ever in flight together.
//   kRead, kWrite    from end to end
//   kRandomRead      each block once a round, in an order drawn from `seed`
//   kMixed           reads and writes in turn, each from end to end, half a file apart
struct RoundShape {
  uint32_t file = 0;
  uint64_t file_bytes = 0;  // whole pages, > 0
  uint64_t block_bytes = 0;
  uint64_t seed = 0;
};
// REQUIRES: kind is not kReplay (replay.h).
std::unique_ptr<Workload> MakeRounds(WorkloadKind kind, const RoundShape& shape);

}  // namespace marea
