#include "swap/chunk_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "io/check.h"

namespace marea {
namespace {

// One shard byte, as a key: chunks are unique by where they begin.
using ChunkStart = std::tuple<uint32_t, ShardKind, uint32_t, uint64_t>;

auto FileOrder(const ChunkEntry& entry) {
  return std::tuple(entry.id.group, entry.id.chunk, entry.id.kind, entry.id.index,
                    entry.id.first_byte);
}

const Access& FileAccess(const StepPlan& plan, const Op& op) {
  const size_t side = op.kind == OpKind::kRead ? 0 : 1;
  MAREA_CHECK(op.accesses.size() == 2, "a transfer has a source and a destination");
  const Access& access = op.accesses[side];
  MAREA_CHECK(plan.buffers[access.buffer].space == Space::kFile,
              "a read comes from a file and a write goes to one");
  return access;
}

}  // namespace

std::string Describe(const ShardChunk& chunk) {
  std::string use =
      chunk.kind == ShardKind::kPartial ? fmt::format(" (use {})", chunk.index) : std::string();
  return fmt::format("{}{} of group {}, chunk {} (bytes {}..{})", ShardKindName(chunk.kind), use,
                     chunk.group, chunk.chunk, chunk.first_byte,
                     chunk.first_byte + chunk.bytes - 1);
}

std::optional<uint32_t> ChunkTable::Find(ShardKind kind, uint32_t group, uint32_t index,
                                         uint64_t first_byte) const {
  // Entries of a group are in chunk order, but a byte does not tell its chunk: search the group.
  const auto begin = std::lower_bound(
      entries.begin(), entries.end(), group,
      [](const ChunkEntry& entry, uint32_t wanted) { return entry.id.group < wanted; });
  for (auto it = begin; it != entries.end() && it->id.group == group; ++it) {
    if (it->id.kind == kind && it->id.index == index && it->id.first_byte == first_byte) {
      return static_cast<uint32_t>(it - entries.begin());
    }
  }
  return std::nullopt;
}

uint64_t ChunkTable::chunk_bytes_max() const {
  uint64_t bytes_max = 0;
  for (const ChunkEntry& entry : entries) bytes_max = std::max(bytes_max, entry.id.bytes);
  return bytes_max;
}

ChunkTable MakeChunkTable(const StepPlan& plan) {
  std::map<ChunkStart, ChunkEntry> found;
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kRead && op.kind != OpKind::kWrite) continue;
    const Access& access = FileAccess(plan, op);
    const Buffer& home = plan.buffers[access.buffer];
    MAREA_CHECK(home.ring == kHomeRing && IsTracked(home.content.kind),
                "a file access touches the home of a shard");
    ChunkEntry entry;
    entry.id = {.kind = home.content.kind,
                .group = home.content.group,
                .index = home.content.index,
                .chunk = op.chunk,
                .first_byte = home.content.first_byte + access.offset,
                .bytes = access.bytes};
    const ChunkStart start(entry.id.group, entry.id.kind, entry.id.index, entry.id.first_byte);
    auto [it, is_new] = found.emplace(start, entry);
    if (it->second.id != entry.id) {
      const std::string message = fmt::format("two ops of the plan see different chunks: {} and {}",
                                              Describe(it->second.id), Describe(entry.id));
      MAREA_CHECK(it->second.id == entry.id, message.c_str());
    }
    if (op.kind == OpKind::kWrite) it->second.updated = true;
  }
  ChunkTable table;
  table.entries.reserve(found.size());
  for (auto& [start, entry] : found) table.entries.push_back(entry);
  std::sort(table.entries.begin(), table.entries.end(),
            [](const ChunkEntry& a, const ChunkEntry& b) { return FileOrder(a) < FileOrder(b); });
  return table;
}

}  // namespace marea
