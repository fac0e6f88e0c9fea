#include "swap/io_thread.h"

#include <utility>

#include "io/check.h"
#include "swap/lane_thread.h"

namespace marea {

IoThread::IoThread(std::string name, TierStore& store, BlockDevice& device, uint32_t inbox_max)
    : store_(store), device_(device), inbox_max_(inbox_max) {
  {
    MutexLock lock(mutex_);
    inbox_.reserve(inbox_max_);
  }
  thread_ = std::thread([this, name = std::move(name)] {
    SetThreadName(name);
    Run();
  });
}

IoThread::~IoThread() {
  Shutdown();
}

void IoThread::Start(const ChunkTransfer& transfer, ChunkDone done) {
  Put({.transfer = transfer, .done = std::move(done)});
}

void IoThread::StartSuperblock(const Superblock& superblock, uint64_t epoch, ChunkDone done) {
  Put({.done = std::move(done),
       .superblock = std::make_unique<Superblock>(superblock),
       .epoch = epoch});
}

void IoThread::Put(Item item) {
  {
    MutexLock lock(mutex_);
    MAREA_CHECK(!stopping_, "a transfer was started on an I/O thread that is shut down");
    MAREA_CHECK(inbox_.size() < inbox_max_,
                "an I/O thread's inbox is full: lanes exceed its bound");
    inbox_.push_back(std::move(item));
  }
  device_.Wake();
}

void IoThread::Shutdown() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  device_.Wake();
  if (thread_.joinable()) thread_.join();
}

void IoThread::Run() {
  std::vector<Item> batch;
  batch.reserve(inbox_max_);
  while (true) {
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      batch.swap(inbox_);
      stopping = stopping_;
    }
    for (Item& item : batch) {
      if (item.superblock != nullptr) {
        store_.StartSuperblock(*item.superblock, item.epoch, std::move(item.done));
      } else {
        store_.Start(item.transfer, std::move(item.done));
      }
    }
    // A Wake that comes between the swap above and the blocking reap is not lost: it makes the next
    // blocking reap return.
    if (stopping && store_.pending() == 0) return;
    batch.clear();
    (void)store_.Poll(ReapWait::kUntilOne);
  }
}

}  // namespace marea
