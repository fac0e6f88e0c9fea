#include "swap/shard_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/check.h"
#include "io/mutex.h"
#include "io/units.h"

namespace marea {

ShardAccess::ShardAccess(Swapper& swapper, const std::array<std::byte*, kSpaceCount>& bases,
                         std::span<std::byte> bounce, std::function<void()> pump)
    : swapper_(swapper), bases_(bases), bounce_(bounce), pump_(std::move(pump)) {
  const uint64_t needed = RoundUp(swapper.parts().chunks.chunk_bytes_max(), kPageBytes);
  MAREA_CHECK(bounce_.size() >= needed, "the bounce buffer holds the largest chunk");
  MAREA_CHECK(reinterpret_cast<uintptr_t>(bounce_.data()) % kPageBytes == 0,
              "the bounce buffer begins on a page");
}

std::vector<ShardChunk> ShardAccess::Chunks(ShardKind kind, uint32_t group) const {
  std::vector<ShardChunk> chunks;
  for (const uint32_t row : swapper_.RowsOf(kind, group)) chunks.push_back(swapper_.chunk(row));
  return chunks;
}

Status ShardAccess::Unknown(ShardKind kind, uint32_t group, uint64_t first_byte,
                            uint64_t bytes) const {
  return Status::Failed(
      fmt::format("{} of group {} has no whole pieces at bytes {}..{} in the plan",
                  ShardKindName(kind), group, first_byte, first_byte + bytes));
}

Status ShardAccess::Read(ShardKind kind, uint32_t group, uint64_t first_byte,
                         std::span<std::byte> bytes) {
  uint64_t done = 0;
  for (const uint32_t row : swapper_.RowsOf(kind, group)) {
    const ShardChunk& piece = swapper_.chunk(row);
    const uint64_t at = first_byte + done;
    if (done == bytes.size() || piece.first_byte + piece.bytes <= at) continue;
    if (piece.first_byte > at) break;  // a hole
    const uint64_t skip = at - piece.first_byte;
    const uint64_t count = std::min(piece.bytes - skip, bytes.size() - done);
    MAREA_RETURN_IF_ERROR(ReadRow(row, skip, bytes.subspan(done, count)));
    done += count;
  }
  if (done < bytes.size()) return Unknown(kind, group, first_byte, bytes.size());
  return Status::Ok();
}

Status ShardAccess::Write(ShardKind kind, uint32_t group, uint64_t first_byte,
                          std::span<const std::byte> bytes) {
  uint64_t done = 0;
  for (const uint32_t row : swapper_.RowsOf(kind, group)) {
    const ShardChunk& piece = swapper_.chunk(row);
    if (done == bytes.size() || piece.first_byte < first_byte) continue;
    if (piece.first_byte != first_byte + done || piece.bytes > bytes.size() - done) break;
    MAREA_RETURN_IF_ERROR(WriteRow(row, bytes.subspan(done, piece.bytes)));
    done += piece.bytes;
  }
  if (done < bytes.size()) return Unknown(kind, group, first_byte, bytes.size());
  return Status::Ok();
}

std::span<std::byte> ShardAccess::HomeSpan(uint32_t row, Space* space) const {
  const HomePlace& home = swapper_.home(row);
  const Buffer& buffer = swapper_.parts().plan.buffers[home.buffer];
  *space = buffer.space;
  if (buffer.space == Space::kFile) return {};
  return {bases_[static_cast<size_t>(buffer.space)] + buffer.offset + home.offset,
          swapper_.chunk(row).bytes};
}

Status ShardAccess::ReadRow(uint32_t row, uint64_t skip, std::span<std::byte> bytes) {
  MAREA_RETURN_IF_ERROR(swapper_.BeginHomeRead(row));
  Space space;
  const std::span<std::byte> home = HomeSpan(row, &space);
  Status status = Status::Ok();
  if (space == Space::kFile) {
    status = MoveChunk(row, IoDirection::kRead);
    if (status.ok()) std::memcpy(bytes.data(), bounce_.data() + skip, bytes.size());
  } else if (space == Space::kVram) {
    status = MoveVram(bytes, home.subspan(skip, bytes.size()), CopyDirection::kToHost);
  } else {
    std::memcpy(bytes.data(), home.data() + skip, bytes.size());
  }
  swapper_.EndHomeRead(row);
  return status;
}

Status ShardAccess::WriteRow(uint32_t row, std::span<const std::byte> bytes) {
  MAREA_RETURN_IF_ERROR(swapper_.BeginHomeWrite(row));
  Space space;
  const std::span<std::byte> home = HomeSpan(row, &space);
  Status status = Status::Ok();
  if (space == Space::kFile) {
    std::memcpy(bounce_.data(), bytes.data(), bytes.size());
    status = MoveChunk(row, IoDirection::kWrite);
  } else if (space == Space::kVram) {
    status = MoveVram(home, bytes, CopyDirection::kToDevice);
  } else {
    std::memcpy(home.data(), bytes.data(), bytes.size());
  }
  swapper_.EndHomeWrite(row, status.ok());
  return status;
}

Status ShardAccess::MoveChunk(uint32_t row, IoDirection direction) {
  const ShardChunk& id = swapper_.chunk(row);
  const ChunkTable& table = swapper_.parts().chunks;
  const auto chunk = table.Find(id.kind, id.group, id.index, id.first_byte);
  MAREA_CHECK(chunk.has_value() && table.entries[*chunk].id.bytes == id.bytes,
              "a piece of a shard on NVMe is a chunk");
  return WaitFor([&](Completion done) {
    swapper_.parts().chunk_io->Start({.direction = direction,
                                      .chunk = *chunk,
                                      .bytes = bounce_.first(RoundUp(id.bytes, kPageBytes))},
                                     std::move(done));
  });
}

Status ShardAccess::MoveVram(std::span<std::byte> destination, std::span<const std::byte> source,
                             CopyDirection direction) {
  return WaitFor([&](Completion done) {
    swapper_.parts().device_copy.Start(destination, source, direction, nullptr, std::move(done));
  });
}

Status ShardAccess::WaitFor(const std::function<void(Completion)>& start) {
  struct Outcome {
    Mutex mutex;
    CondVar changed;
    bool done GUARDED_BY(mutex) = false;
    Status status GUARDED_BY(mutex) = Status::Ok();
  } outcome;
  start([&outcome](Status status) {
    // Notified under the lock: the waiter, and with it `outcome`, is gone soon after.
    MutexLock lock(outcome.mutex);
    outcome.status = std::move(status);
    outcome.done = true;
    outcome.changed.NotifyOne();
  });
  while (true) {
    {
      MutexLock lock(outcome.mutex);
      while (!outcome.done && !pump_) outcome.changed.Wait(outcome.mutex);
      if (outcome.done) return outcome.status;
    }
    pump_();
  }
}

}  // namespace marea
