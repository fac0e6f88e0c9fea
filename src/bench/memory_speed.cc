#include "src/bench/memory_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/optim/adamw.h"
#include "engine/optim/split_master.h"
#include "engine/optim/worker_pool.h"
#include "io/memory_limits.h"
#include "io/pinned_arena.h"
#include "io/units.h"
#include "src/bench/fio_peer.h"
#include "src/bench/page_stamps.h"
#include "src/bench/stopped.h"

namespace marea {
namespace {

constexpr size_t kRunsMin = 3;
// Twice this is copied between; no cache of a socket holds half of it.
constexpr uint64_t kCopyBytes = kGiB;
constexpr uint64_t kCopyBytesMin = 64 * kMiB;
// As large as a run's copies: memcpy stores through the caches. Of some hundred MiB at once it
// would write past them and be faster than any copy of a run.
constexpr uint64_t kCopyPieceBytes = 32 * kMiB;
constexpr uint64_t kParameters = 64 << 20;
constexpr uint64_t kParametersMin = 4 << 20;
// In RAM: bf16 weight and low half, two fp32 moments, bf16 gradient.
constexpr uint64_t kParameterBytes = 2 + 2 + 4 + 4 + 2;
constexpr uint64_t kArrays = 5;  // each begins on a page

// At most an eighth of what is free goes into one buffer.
Result<uint64_t> SpareBytes() {
  MAREA_ASSIGN_OR_RETURN(const MemoryLimits limits, ReadMemoryLimits());
  return std::min(limits.available_bytes, limits.cgroup_bytes) / 8;
}

// The arrays of one update, in pages as a run's, filled by formula so that two are equal.
class Parameters {
 public:
  static Result<Parameters> Make(WorkerPool& pool, size_t count) {
    ArenaOptions options;
    options.bytes = count * kParameterBytes + kArrays * kPageBytes;
    MAREA_ASSIGN_OR_RETURN(PinnedArena arena, PinnedArena::Create(options));
    Parameters made(std::move(arena), count);
    const AdamWChunk chunk = made.chunk();
    constexpr size_t kPiece = 1 << 16;
    pool.ParallelFor(0, count, kPiece, [&](size_t first, size_t last) {
      for (size_t i = first; i < last; ++i) {
        const SplitFloat master = SplitMaster(static_cast<float>(i % 1009) * 1e-4f - 0.05f);
        chunk.weight_bf16[i] = master.high;
        chunk.master_low[i] = master.low;
        made.gradient_[i] = SplitMaster(static_cast<float>(i % 757) * 1e-5f - 0.003f).high;
        chunk.moment1[i] = 0;
        chunk.moment2[i] = 0;
      }
    });
    return made;
  }

  AdamWChunk chunk() const {
    AdamWChunk chunk = chunk_;
    chunk.gradient_bf16 = gradient_;
    return chunk;
  }
  // Gaps between arrays are zeros in both.
  bool operator==(const Parameters& other) const {
    return arena_.bytes().size() == other.arena_.bytes().size() &&
           std::memcmp(arena_.bytes().data(), other.arena_.bytes().data(), arena_.bytes().size()) ==
               0;
  }

 private:
  Parameters(PinnedArena arena, size_t count) : arena_(std::move(arena)) {
    std::byte* at = arena_.bytes().data();
    const auto take = [&]<typename Value>(Value*& array) {
      array = reinterpret_cast<Value*>(at);
      at += RoundUp(count * sizeof(Value), kPageBytes);
    };
    take(chunk_.moment1);
    take(chunk_.moment2);
    take(chunk_.weight_bf16);
    take(chunk_.master_low);
    take(gradient_);
    chunk_.elements = count;
  }

  PinnedArena arena_;
  AdamWChunk chunk_;
  uint16_t* gradient_ = nullptr;
};

Status CheckLevel(WorkerPool& pool, SimdLevel level) {
  constexpr size_t kCount = 100003;  // leaves a remainder in every vector
  MAREA_ASSIGN_OR_RETURN(const Parameters expected, Parameters::Make(pool, kCount));
  MAREA_ASSIGN_OR_RETURN(const Parameters actual, Parameters::Make(pool, kCount));
  const AdamWConstants constants = MakeAdamWConstants({}, 1e-3, 3);
  RunAdamW(pool, expected.chunk(), constants, SimdLevel::kScalar);
  RunAdamW(pool, actual.chunk(), constants, level);
  if (expected == actual) return Status::Ok();
  return Status::Failed("AdamW's vector instructions give other bits than its scalar code");
}

}  // namespace

Result<double> MedianRunSeconds(const SpeedOptions& options, const std::function<Status()>& body) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  MAREA_RETURN_IF_ERROR(body());
  std::vector<double> runs;
  const Clock::time_point start = Clock::now();
  while (runs.size() < kRunsMin || seconds_since(start) < options.seconds) {
    if (options.stop != nullptr && *options.stop) {
      return Stopped();
    }
    const Clock::time_point begin = Clock::now();
    MAREA_RETURN_IF_ERROR(body());
    runs.push_back(seconds_since(begin));
  }
  return Median(std::move(runs));
}

Result<double> MeasureRamCopy(const SpeedOptions& options) {
  MAREA_ASSIGN_OR_RETURN(const uint64_t spare, SpareBytes());
  const uint64_t bytes = RoundUp(std::clamp(spare, kCopyBytesMin, kCopyBytes), kCopyPieceBytes);
  ArenaOptions arena_options;
  arena_options.bytes = 2 * bytes;
  MAREA_ASSIGN_OR_RETURN(PinnedArena arena, PinnedArena::Create(arena_options));
  std::byte* const source = arena.bytes().data();
  std::byte* const destination = source + bytes;
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerPool> pool,
                         WorkerPool::Create(static_cast<int>(options.threads), "copy"));
  FillRandomPages(arena.bytes().first(bytes), 1);
  const auto copy = [&] {
    pool->ParallelFor(0, bytes, kCopyPieceBytes, [&](size_t first, size_t last) {
      std::memcpy(destination + first, source + first, last - first);
    });
    return Status::Ok();
  };
  MAREA_RETURN_IF_ERROR(copy());
  if (std::memcmp(source, destination, bytes) != 0) {
    return Status::Corrupt("RAM does not hold what was copied to it: test the machine's memory");
  }
  MAREA_ASSIGN_OR_RETURN(const double seconds, MedianRunSeconds(options, copy));
  return 2.0 * static_cast<double>(bytes) / seconds;
}

Result<double> MeasureAdamW(const SpeedOptions& options) {
  MAREA_ASSIGN_OR_RETURN(const uint64_t spare, SpareBytes());
  const uint64_t count = std::clamp(spare / kParameterBytes, kParametersMin, kParameters);
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerPool> pool,
                         WorkerPool::Create(static_cast<int>(options.threads), "adamw"));
  const SimdLevel level = DetectSimdLevel();
  MAREA_RETURN_IF_ERROR(CheckLevel(*pool, level));
  MAREA_ASSIGN_OR_RETURN(const Parameters parameters, Parameters::Make(*pool, count));
  uint64_t update = 0;
  const auto step = [&] {
    RunAdamW(*pool, parameters.chunk(), MakeAdamWConstants({}, 1e-3, update++), level);
    return Status::Ok();
  };
  MAREA_ASSIGN_OR_RETURN(const double seconds, MedianRunSeconds(options, step));
  return static_cast<double>(count) / seconds;
}

}  // namespace marea
