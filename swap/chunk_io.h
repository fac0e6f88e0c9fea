// Asynchronous transfers of whole chunks between RAM and their homes on NVMe.
//
// A chunk is named by its index in the table with which the store was made (tier_store.h): the plan
// speaks of file-space bytes, the store alone knows paths, slots and offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "io/block_device.h"
#include "io/status.h"

namespace marea {

struct ChunkTransfer {
  IoDirection direction;
  uint32_t chunk;              // index into the store's chunk table
  std::span<std::byte> bytes;  // page aligned, rounded up to whole pages; the chunk's own length is
                               // in the table
};

using ChunkDone = std::function<void(Status)>;

class ChunkIo {
 public:
  virtual ~ChunkIo() = default;
  // Never blocks. `done` is called once, on the I/O thread; a read is verified against the checksum
  // of what was last written before it is handed up. Transfers of one chunk run in the order given.
  virtual void Start(const ChunkTransfer& transfer, ChunkDone done) = 0;
};

}  // namespace marea
