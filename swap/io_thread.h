// A named thread that drives one TierStore: Start from anywhere, I/O and callbacks here. A device
// belongs to the thread that drives it first, so everything goes through here.
//
// Owner: NvmeTier, one per path. Thread rule: Start and status from any thread; Shutdown from one.
// The inbox is bounded by `inbox_max`, allocated at the start. The lanes' depths bound what can be
// in flight, so a full inbox is a programmer error and stops the process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/block_device.h"
#include "io/mutex.h"
#include "swap/chunk_io.h"
#include "swap/superblock.h"
#include "swap/tier_store.h"

namespace marea {

class IoThread final : public ChunkIo {
 public:
  // Takes over driving `store` and `device` (the store's) until Shutdown; both outlive it.
  IoThread(std::string name, TierStore& store, BlockDevice& device, uint32_t inbox_max);
  ~IoThread() override;  // shuts down

  // Never blocks. `done` runs on this thread and must not block. REQUIRES: not shut down.
  void Start(const ChunkTransfer& transfer, ChunkDone done) override;

  // Never blocks. As TierStore::StartSuperblock, `done` on this thread (its flushes block it).
  // REQUIRES: nothing else is in flight or started until `done`.
  void StartSuperblock(const Superblock& superblock, uint64_t epoch, ChunkDone done);

  // Finishes every transfer that was started, then ends the thread. Blocks. Harmless to repeat.
  void Shutdown();

 private:
  struct Item {
    ChunkTransfer transfer{};
    ChunkDone done;
    std::unique_ptr<Superblock> superblock = nullptr;  // instead of the transfer
    uint64_t epoch = 0;
  };
  void Run();
  void Put(Item item);

  TierStore& store_;
  BlockDevice& device_;
  const uint32_t inbox_max_;
  Mutex mutex_;
  std::vector<Item> inbox_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: the thread sees every other member
};

}  // namespace marea
