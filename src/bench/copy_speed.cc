#include "src/bench/copy_speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "io/mutex.h"
#include "io/pinned_arena.h"
#include "io/units.h"
#include "src/bench/page_stamps.h"
#include "src/bench/stopped.h"

namespace marea {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPieceBytes = 32 * kMiB;
constexpr int kPieces = 4;  // of a direction, all in flight
static_assert(kCopySpeedVramBytes == 2 * kPieces * kPieceBytes);
constexpr double kCopyWarmUpShare = 0.2;
constexpr uint64_t kPiecesMin = 8;  // in the window, however short

// One direction's pieces: RAM and VRAM of equal size.
struct Side {
  CopyDirection direction;
  std::span<std::byte> host;
  std::span<std::byte> device;
};

// Keeps every piece of its sides in flight; completions come from any thread, all else is one
// thread's.
class CopyLoop {
 public:
  CopyLoop(Device& device, std::span<const Side> sides) : device_(device), sides_(sides) {}

  // Every piece once.
  Status RunOnce() {
    for (size_t side = 0; side < sides_.size(); ++side) {
      for (int piece = 0; piece < kPieces; ++piece) Start(side, piece);
    }
    while (in_flight_ > 0) (void)Wait();
    return status_;
  }

  // Bytes a second of each side, once the warm-up is over.
  Result<std::array<double, 2>> Run(const SpeedOptions& options) {
    std::array<uint64_t, 2> pieces{};
    std::array<double, 2> seconds{};
    for (size_t side = 0; side < sides_.size(); ++side) {
      for (int piece = 0; piece < kPieces; ++piece) Start(side, piece);
    }
    const Clock::time_point start = Clock::now();
    const double warm_up = kCopyWarmUpShare * options.seconds;
    std::array<double, 2> began{-1, -1};  // at the side's last piece of the warm-up
    bool ending = false;
    while (in_flight_ > 0) {
      const auto [side, piece] = Wait();
      const double now = std::chrono::duration<double>(Clock::now() - start).count();
      if (!status_.ok() || (options.stop != nullptr && *options.stop)) ending = true;
      if (ending) continue;
      if (began[side] < 0) {
        if (now >= warm_up) began[side] = now;
      } else {
        ++pieces[side];
        seconds[side] = now - began[side];
      }
      Start(side, piece);
      ending = std::all_of(sides_.begin(), sides_.end(), [&](const Side& each) {
        const size_t index = static_cast<size_t>(&each - sides_.data());
        return pieces[index] >= kPiecesMin && seconds[index] >= options.seconds - warm_up;
      });
    }
    MAREA_RETURN_IF_ERROR(status_);
    if (options.stop != nullptr && *options.stop) {
      return Stopped();
    }
    std::array<double, 2> rates{};
    for (size_t side = 0; side < sides_.size(); ++side) {
      rates[side] = static_cast<double>(pieces[side] * kPieceBytes) / seconds[side];
    }
    return rates;
  }

 private:
  struct Ended {
    size_t side;
    int piece;
  };

  void Start(size_t side, int piece) {
    const Side& each = sides_[side];
    const uint64_t begin = static_cast<uint64_t>(piece) * kPieceBytes;
    const std::span<std::byte> host = each.host.subspan(begin, kPieceBytes);
    const std::span<std::byte> device = each.device.subspan(begin, kPieceBytes);
    const bool in = each.direction == CopyDirection::kToDevice;
    ++in_flight_;
    device_.Start(in ? device : host, in ? host : device, each.direction, nullptr,
                  [this, side, piece](Status status) {
                    const MutexLock lock(mutex_);
                    ended_[ended_count_++] = {side, piece};
                    if (!status.ok() && failed_.ok()) failed_ = std::move(status);
                    some_ended_.NotifyOne();
                  });
  }

  Ended Wait() {
    const MutexLock lock(mutex_);
    while (ended_count_ == 0) some_ended_.Wait(mutex_);
    if (status_.ok()) status_ = failed_;
    --in_flight_;
    return ended_[--ended_count_];
  }

  Device& device_;
  const std::span<const Side> sides_;
  int in_flight_ = 0;
  Status status_ = Status::Ok();
  Mutex mutex_;
  CondVar some_ended_;
  std::array<Ended, 2 * kPieces> ended_ GUARDED_BY(mutex_);
  size_t ended_count_ GUARDED_BY(mutex_) = 0;
  Status failed_ GUARDED_BY(mutex_) = Status::Ok();
};

Status CheckThereAndBack(Device& device, const Side& in, const Side& out) {
  // Out of what went in, so that the device's bytes are what is compared.
  const Side back{CopyDirection::kToHost, out.host, in.device};
  MAREA_RETURN_IF_ERROR(CopyLoop(device, {&in, 1}).RunOnce());
  MAREA_RETURN_IF_ERROR(CopyLoop(device, {&back, 1}).RunOnce());
  if (std::memcmp(in.host.data(), out.host.data(), in.host.size()) == 0) return Status::Ok();
  return Status::Corrupt("what was copied to the device does not come back as it was");
}

Result<CopyRates> MeasurePinned(Device& device, std::span<std::byte> ram,
                                const SpeedOptions& options) {
  constexpr uint64_t kSideBytes = kPieces * kPieceBytes;
  FillRandomPages(ram.first(kSideBytes), 1);
  const Side sides[] = {
      {CopyDirection::kToDevice, ram.first(kSideBytes), device.vram().first(kSideBytes)},
      {CopyDirection::kToHost, ram.subspan(kSideBytes, kSideBytes),
       device.vram().subspan(kSideBytes, kSideBytes)}};
  MAREA_RETURN_IF_ERROR(CheckThereAndBack(device, sides[0], sides[1]));
  const auto run = [&](std::span<const Side> chosen) {
    return CopyLoop(device, chosen).Run(options);
  };
  CopyRates rates;
  MAREA_ASSIGN_OR_RETURN(const auto in, run({sides, 1}));
  MAREA_ASSIGN_OR_RETURN(const auto out, run({sides + 1, 1}));
  MAREA_ASSIGN_OR_RETURN(const auto both, run(sides));
  rates.h2d = in[0];
  rates.d2h = out[0];
  rates.both_h2d = both[0];
  rates.both_d2h = both[1];
  return rates;
}

}  // namespace

Result<CopyRates> MeasureCopies(Device& device, const SpeedOptions& options) {
  ArenaOptions arena_options;
  arena_options.bytes = kCopySpeedVramBytes;
  arena_options.registrar = device.registrar();
  MAREA_ASSIGN_OR_RETURN(PinnedArena arena, PinnedArena::Create(arena_options));
  Result<CopyRates> rates = MeasurePinned(device, arena.bytes(), options);
  const Status unpinned = arena.Shutdown();
  if (rates.ok() && !unpinned.ok()) return unpinned;
  return rates;
}

}  // namespace marea
