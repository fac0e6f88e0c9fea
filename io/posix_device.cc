#include "io/posix_device.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "io/file_device.h"
#include "io/fixed_ring.h"
#include "io/mutex.h"

namespace marea {
namespace {

BlockDeviceOptions WithThreads(BlockDeviceOptions options) {
  options.queue_depth = std::min(options.queue_depth, kPosixThreadsMax);
  return options;
}

class PosixDevice : public FileDevice {
 public:
  PosixDevice(std::span<const DeviceFile> files, const BlockDeviceOptions& options,
              IoModeReport report)
      : FileDevice(files, options, std::move(report)),
        thread_count_(options.queue_depth),
        jobs_(options.queue_depth),
        answers_(options.queue_depth) {
    threads_.reserve(thread_count_);
  }
  ~PosixDevice() override;

  Status StartThreads();
  Status Submit(std::span<const IoRequest> requests) override;
  size_t Reap(std::span<IoCompletion> completions, ReapWait wait) override;
  void Wake() override;

 private:
  struct Answer {
    uint64_t token = 0;
    int64_t result = 0;
  };

  void Work();
  int64_t Transfer(const TransferSet::Piece& piece) const;
  void Pump();

  const uint32_t thread_count_;
  std::vector<std::thread> threads_;

  Mutex mutex_;
  CondVar work_;   // jobs_ is not empty, or stop_
  CondVar ready_;  // answers_ is not empty, or woken_
  FixedRing<TransferSet::Piece> jobs_ GUARDED_BY(mutex_);
  FixedRing<Answer> answers_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  bool woken_ GUARDED_BY(mutex_) = false;
};

PosixDevice::~PosixDevice() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    work_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

Status PosixDevice::StartThreads() {
  for (uint32_t i = 0; i < thread_count_; ++i) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error& error) {  // the one place where std::thread throws
      return Status::Errno(ErrorCode::kUnavailable, "an I/O thread cannot be started",
                           error.code().value());
    }
    pthread_setname_np(threads_.back().native_handle(), ("marea-io-" + std::to_string(i)).c_str());
  }
  return Status::Ok();
}

void PosixDevice::Work() {
  mutex_.Lock();
  while (true) {
    while (jobs_.empty() && !stop_) work_.Wait(mutex_);
    if (stop_) break;
    const TransferSet::Piece piece = jobs_.Pop();
    mutex_.Unlock();
    const int64_t result = Transfer(piece);
    mutex_.Lock();
    answers_.Push({piece.token, result});
    ready_.NotifyOne();
  }
  mutex_.Unlock();
}

int64_t PosixDevice::Transfer(const TransferSet::Piece& piece) const {
  const int fd = fds_[piece.file];
  const auto offset = static_cast<off_t>(piece.offset);
  const ssize_t result = piece.direction == IoDirection::kRead
                             ? ::pread(fd, piece.data, piece.bytes, offset)
                             : ::pwrite(fd, piece.data, piece.bytes, offset);
  return result < 0 ? -errno : result;
}

// Takes what the threads have finished and gives them what may go on.
void PosixDevice::Pump() {
  MutexLock lock(mutex_);
  while (!answers_.empty()) {
    const Answer answer = answers_.Pop();
    transfers_.Finish(answer.token, answer.result);
  }
  TransferSet::Piece piece;
  while (transfers_.Next(&piece)) {
    jobs_.Push(piece);
    work_.NotifyOne();
  }
}

Status PosixDevice::Submit(std::span<const IoRequest> requests) {
  thread_.Check();
  MAREA_CHECK(requests.size() <= capacity() - in_flight(), "more requests than the capacity");
  for (const IoRequest& request : requests) transfers_.Add(request);
  Pump();
  return Status::Ok();
}

size_t PosixDevice::Reap(std::span<IoCompletion> completions, ReapWait wait) {
  thread_.Check();
  Pump();
  while (wait == ReapWait::kUntilOne) {
    {
      MutexLock lock(mutex_);
      while (answers_.empty() && !woken_ && !transfers_.has_finished()) ready_.Wait(mutex_);
      if (woken_ || transfers_.has_finished()) {
        woken_ = false;
        break;
      }
    }
    Pump();
  }
  return transfers_.TakeFinished(completions);
}

void PosixDevice::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  ready_.NotifyOne();
}

}  // namespace

Result<std::unique_ptr<BlockDevice>> MakePosixDevice(std::span<const DeviceFile> files,
                                                     const BlockDeviceOptions& options,
                                                     IoModeReport report) {
  MAREA_RETURN_IF_ERROR(ValidateOptions(options));
  auto device = std::make_unique<PosixDevice>(files, WithThreads(options), std::move(report));
  MAREA_RETURN_IF_ERROR(device->StartThreads());
  return std::unique_ptr<BlockDevice>(std::move(device));
}

}  // namespace marea
