#include "io/uring_device.h"

#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "io/file_device.h"
#include "io/unique_fd.h"
#include "io/units.h"
#include "io/uring_setup.h"

namespace marea {
namespace {

// Note [Calls of two]
// What one call of more than two submissions brings, the kernel holds back until it has seen all of
// it, and merges neighbours up to the drive's max_sectors_kb: of 32 requests of 1 MiB the drive
// gets 8 of 4 MiB, and answers as few at a time. Small requests gain by that. Large ones are what
// the caller chose for this drive: they go in calls of two, which the kernel passes on as they are,
// and keep the drive's queue as deep as was asked for. docs/decisions.md has the figures.
constexpr uint64_t kLargePieceBytes = 512 * kKiB;
constexpr unsigned kLargePiecesPerCall = 2;

constexpr uint64_t kWakeToken = UINT64_MAX;
constexpr int kBusyRetriesMax = 10'000;

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kShortestWait(1);

class UringDevice : public FileDevice {
 public:
  UringDevice(std::span<const DeviceFile> files, const BlockDeviceOptions& options, Ring ring,
              RegisteredBuffers buffers, UniqueFd wake_fd, IoModeReport report);
  ~UringDevice() override;

  Status Submit(std::span<const IoRequest> requests) override;
  size_t Reap(std::span<IoCompletion> completions, ReapWait wait) override;
  void Wake() override;

 private:
  void EnsureEnabled();
  void ArmWake();
  void Fill();
  void Collect();
  void SubmitFilled();
  void WaitForOne();
  void CheckSilence();
  bool HandleEnterResult(int result);
  void Break(int error_number, const char* what);
  bool FinishedOrWoken() const { return transfers_.has_finished() || woken_; }

  Ring ring_;
  const RegisteredBuffers buffers_;
  const UniqueFd wake_fd_;
  bool enabled_ = false;
  bool woken_ = false;                 // a Wake that no blocking Reap has answered yet
  uint64_t wake_value_ = 0;            // where the kernel puts the eventfd's count
  int busy_retries_ = 0;               // in a row
  const Clock::duration silence_max_;  // 0: none is too long
  Clock::time_point heard_;            // of the drive, or when it was first asked
  std::optional<Status> broken_;
  std::atomic<bool> wake_pending_{false};  // set by Wake, cleared by the driving thread
};

UringDevice::UringDevice(std::span<const DeviceFile> files, const BlockDeviceOptions& options,
                         Ring ring, RegisteredBuffers buffers, UniqueFd wake_fd,
                         IoModeReport report)
    : FileDevice(files, options, std::move(report)),
      ring_(std::move(ring)),
      buffers_(std::move(buffers)),
      wake_fd_(std::move(wake_fd)),
      silence_max_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(options.silence_seconds_max))) {}

UringDevice::~UringDevice() {
  // Memory of pieces that are out belongs to the kernel until they end.
  if (transfers_.pieces_out() > 0) thread_.Check();
  while (!broken_.has_value() && transfers_.pieces_out() > 0) {
    WaitForOne();
    Collect();
    CheckSilence();
  }
}

Status UringDevice::Submit(std::span<const IoRequest> requests) {
  EnsureEnabled();
  if (broken_.has_value()) return *broken_;
  MAREA_CHECK(requests.size() <= capacity() - in_flight(), "more requests than the capacity");
  if (transfers_.pieces_out() == 0) heard_ = Clock::now();
  for (const IoRequest& request : requests) transfers_.Add(request);
  Fill();
  SubmitFilled();
  return Status::Ok();
}

size_t UringDevice::Reap(std::span<IoCompletion> completions, ReapWait wait) {
  EnsureEnabled();
  if (!broken_.has_value()) {
    Collect();
    CheckSilence();
    SubmitFilled();
  }
  if (wait == ReapWait::kUntilOne) {
    while (!FinishedOrWoken() && !broken_.has_value()) {
      WaitForOne();
      Collect();
      CheckSilence();
      SubmitFilled();
    }
    if (!FinishedOrWoken()) {
      // The ring is gone and nothing is in flight: only Wake can end this.
      wake_pending_.wait(false, std::memory_order_acquire);
    }
    if (broken_.has_value()) wake_pending_.store(false, std::memory_order_relaxed);
    woken_ = false;
  }
  return transfers_.TakeFinished(completions);
}

void UringDevice::Wake() {
  if (wake_pending_.exchange(true, std::memory_order_acq_rel)) return;  // one is on its way
  wake_pending_.notify_all();
  const uint64_t one = 1;
  while (::write(wake_fd_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

// The ring is made disabled, so that the thread that drives it, not the one that made it, becomes
// the kernel's single issuer.
void UringDevice::EnsureEnabled() {
  thread_.Check();
  if (enabled_) return;
  enabled_ = true;
  if (ring_.starts_disabled()) {
    const int result = io_uring_enable_rings(ring_.get());
    if (result < 0) {
      Break(-result, "io_uring cannot be enabled");
      return;
    }
  }
  ArmWake();
  SubmitFilled();
}

void UringDevice::ArmWake() {
  io_uring_sqe* const sqe = io_uring_get_sqe(ring_.get());
  MAREA_CHECK(sqe != nullptr, "the submission queue holds every piece and the wake read");
  io_uring_prep_read(sqe, wake_fd_.get(), &wake_value_, sizeof(wake_value_), 0);
  io_uring_sqe_set_data64(sqe, kWakeToken);
}

// Puts every piece that may be out into the submission queue, which has room for queue_depth of
// them and the wake read. Large ones are submitted on the way, Note [Calls of two].
void UringDevice::Fill() {
  TransferSet::Piece piece;
  while (!broken_.has_value() && transfers_.Next(&piece)) {
    io_uring_sqe* const sqe = io_uring_get_sqe(ring_.get());
    MAREA_CHECK(sqe != nullptr, "the submission queue holds every piece and the wake read");
    const int buffer = buffers_.Find(piece.data, piece.bytes);
    const int file = fds_[piece.file];
    const auto bytes = static_cast<unsigned>(piece.bytes);  // at most 1 GiB
    if (piece.direction == IoDirection::kRead) {
      if (buffer >= 0) {
        io_uring_prep_read_fixed(sqe, file, piece.data, bytes, piece.offset, buffer);
      } else {
        io_uring_prep_read(sqe, file, piece.data, bytes, piece.offset);
      }
    } else if (buffer >= 0) {
      io_uring_prep_write_fixed(sqe, file, piece.data, bytes, piece.offset, buffer);
    } else {
      io_uring_prep_write(sqe, file, piece.data, bytes, piece.offset);
    }
    io_uring_sqe_set_data64(sqe, piece.token);
    const bool large = piece.bytes >= kLargePieceBytes;
    if (large && io_uring_sq_ready(ring_.get()) >= kLargePiecesPerCall) SubmitFilled();
  }
}

// First collects every completion, then acts on what they allow.
void UringDevice::Collect() {
  constexpr unsigned kBatch = 64;
  std::array<io_uring_cqe*, kBatch> cqes;
  bool wake = false;
  int wake_result = 0;
  unsigned count = 0;
  bool heard = false;
  if (broken_.has_value()) return;
  while ((count = io_uring_peek_batch_cqe(ring_.get(), cqes.data(), kBatch)) > 0) {
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t token = io_uring_cqe_get_data64(cqes[i]);
      if (token == kWakeToken) {
        wake = true;
        wake_result = cqes[i]->res;
      } else {
        transfers_.Finish(token, cqes[i]->res);
        heard = true;
      }
    }
    io_uring_cq_advance(ring_.get(), count);
  }
  if (heard) heard_ = Clock::now();
  if (wake_result < 0 && wake_result != -EINTR && wake_result != -EAGAIN) {
    Break(-wake_result, "the eventfd that wakes the device cannot be read");
  }
  if (broken_.has_value()) return;
  if (wake) {
    // Acquires what the waking thread did before its Wake.
    if (wake_pending_.exchange(false, std::memory_order_acq_rel)) woken_ = true;
    ArmWake();
  }
  Fill();
}

void UringDevice::SubmitFilled() {
  while (!broken_.has_value() && io_uring_sq_ready(ring_.get()) > 0) {
    const int result = io_uring_submit(ring_.get());
    // What was not taken stays in the submission queue for the next call.
    if (!HandleEnterResult(result) || result < 0) return;
  }
}

// An idle device waits for a Wake for as long as it takes; one with transfers, only as long as the
// drive may be silent.
void UringDevice::WaitForOne() {
  if (transfers_.pieces_out() == 0 || silence_max_ == Clock::duration::zero() ||
      !ring_.can_wait_with_limit()) {
    static_cast<void>(HandleEnterResult(io_uring_submit_and_wait(ring_.get(), 1)));
    return;
  }
  const Clock::duration left = heard_ + silence_max_ - Clock::now();
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::max<Clock::duration>(left, kShortestWait))
                               .count();
  __kernel_timespec limit{.tv_sec = nanoseconds / 1'000'000'000,
                          .tv_nsec = nanoseconds % 1'000'000'000};
  io_uring_cqe* cqe = nullptr;
  const int result = io_uring_submit_and_wait_timeout(ring_.get(), &cqe, 1, &limit, nullptr);
  if (result != -ETIME) static_cast<void>(HandleEnterResult(result));
}

// Breaks the device if the drive has been silent for too long, however often Wake was called.
void UringDevice::CheckSilence() {
  const auto too_long = [&] {
    return !broken_.has_value() && transfers_.pieces_out() > 0 &&
           silence_max_ > Clock::duration::zero() && Clock::now() - heard_ > silence_max_;
  };
  if (!too_long()) return;
  // It may be this thread that was away: then the answers are there.
  static_cast<void>(io_uring_get_events(ring_.get()));
  Collect();
  if (!too_long()) return;
  const double seconds = std::chrono::duration<double>(silence_max_).count();
  const std::string what =
      fmt::format("the drive has not answered for {:.3g} seconds (`dmesg` may say why)", seconds);
  Break(ETIMEDOUT, what.c_str());
}

// False if the ring is broken. A kernel that is short of memory (EAGAIN) or has completions to hand
// over first (EBUSY) is asked again later.
bool UringDevice::HandleEnterResult(int result) {
  if (result >= 0) {
    busy_retries_ = 0;
    return true;
  }
  if (result == -EINTR) return true;
  if ((result == -EAGAIN || result == -EBUSY) && ++busy_retries_ <= kBusyRetriesMax) return true;
  Break(-result, "io_uring_enter failed");
  return false;
}

void UringDevice::Break(int error_number, const char* what) {
  if (broken_.has_value()) return;
  broken_ = Status::Io(what, error_number);
  transfers_.FailAll(*broken_);
  if (wake_pending_.load(std::memory_order_acquire)) woken_ = true;
}

}  // namespace

Result<std::unique_ptr<BlockDevice>> MakeUringDevice(std::span<const DeviceFile> files,
                                                     std::span<const std::span<std::byte>> buffers,
                                                     const BlockDeviceOptions& options,
                                                     IoModeReport report) {
  MAREA_RETURN_IF_ERROR(ValidateOptions(options));
  MAREA_CHECK(report.mode == IoMode::kUringRegistered || report.mode == IoMode::kUring,
              "not a mode of io_uring");
  UniqueFd wake_fd(::eventfd(0, EFD_CLOEXEC));
  if (!wake_fd.valid()) {
    return Status::Errno(ErrorCode::kUnavailable, "an eventfd cannot be made", errno);
  }
  Ring ring;
  MAREA_RETURN_IF_ERROR(ring.Open(options.queue_depth + 1));
  RegisteredBuffers registered;
  if (report.mode == IoMode::kUringRegistered) {
    MAREA_RETURN_IF_ERROR(registered.Register(ring, buffers));
  }
  return std::unique_ptr<BlockDevice>(
      std::make_unique<UringDevice>(files, options, std::move(ring), std::move(registered),
                                    std::move(wake_fd), std::move(report)));
}

}  // namespace marea
