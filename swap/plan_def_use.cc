#include <fmt/format.h>

#include <map>
#include <optional>

#include "swap/plan_check.h"

namespace marea {
namespace {

// Which shard a byte belongs to; a value and its home agree on it.
struct ShardKey {
  ShardKind kind;
  uint32_t group, index, micro;
  auto operator<=>(const ShardKey&) const = default;
};

ShardKey KeyOf(const Content& content) {
  return {content.kind, content.group, content.index, content.micro};
}

constexpr uint64_t kUndefined = UINT64_MAX;

// Values over byte ranges, kept as maximal runs. A run's value may move along with its bytes:
// `shift` is shard byte minus address, so that a copy carries the identity of each byte.
struct Run {
  uint64_t end;
  uint64_t version = kUndefined;
  ShardKey key{};
  int64_t shift = 0;
};

class RunMap {
 public:
  void Assign(uint64_t begin, uint64_t end, Run run) {
    Split(begin);
    Split(end);
    runs_.erase(runs_.lower_bound(begin), runs_.lower_bound(end));
    run.end = end;
    runs_.emplace(begin, run);
  }

  // Calls f(begin, end, run) for each stretch of [begin, end); undefined stretches have no run.
  template <typename F>
  void Visit(uint64_t begin, uint64_t end, F&& f) const {
    auto it = runs_.upper_bound(begin);
    if (it != runs_.begin() && std::prev(it)->second.end > begin) --it;
    uint64_t at = begin;
    while (at < end) {
      if (it == runs_.end() || it->first >= end) return f(at, end, Run{end});
      if (it->first > at) f(at, it->first, Run{it->first}), at = it->first;
      const uint64_t stop = std::min(end, it->second.end);
      f(at, stop, it->second);
      at = stop;
      ++it;
    }
  }

 private:
  void Split(uint64_t at) {
    auto it = runs_.lower_bound(at);
    if (it == runs_.begin()) return;
    --it;
    if (it->second.end <= at) return;
    Run tail = it->second;
    it->second.end = at;
    runs_.emplace(at, tail);
  }

  std::map<uint64_t, Run> runs_;  // by first byte, disjoint
};

bool IsTransfer(OpKind kind) {
  return kind == OpKind::kRead || kind == OpKind::kWrite || kind == OpKind::kCopyIn ||
         kind == OpKind::kCopyOut;
}

class DefUse {
 public:
  explicit DefUse(const StepPlan& plan) : plan_(plan) {
    for (const Buffer& buffer : plan.buffers) {
      const ShardKind kind = buffer.content.kind;
      const bool initial = kind < ShardKind::kGradient || kind == ShardKind::kScalar;
      if (buffer.ring == kHomeRing && initial) Define(buffer, 0, buffer.bytes, 0);
    }
  }

  Status Execute(const Op& op, uint64_t version) {
    for (const Access& access : op.accesses) {
      if (Reads(access.mode)) MAREA_RETURN_IF_ERROR(CheckRead(op, access));
    }
    if (IsTransfer(op.kind)) return Copy(op);
    if (op.kind == OpKind::kGather) return Gather(op, version);
    for (const Access& access : op.accesses) {
      if (Writes(access.mode)) {
        Define(plan_.buffers[access.buffer], access.offset, access.bytes, version);
      }
    }
    return Status::Ok();
  }

 private:
  // These bytes now hold a new version of their shard.
  void Define(const Buffer& buffer, uint64_t offset, uint64_t bytes, uint64_t version) {
    if (bytes == 0) return;
    const uint64_t shard_byte = buffer.content.first_byte + offset;
    const uint64_t address = buffer.offset + offset;
    const ShardKey key = KeyOf(buffer.content);
    newest_[key].Assign(shard_byte, shard_byte + bytes, {0, version, key, 0});
    memory(buffer.space)
        .Assign(address, address + bytes,
                {0, version, key, static_cast<int64_t>(shard_byte - address)});
  }

  Status CheckRead(const Op& op, const Access& access) {
    const Buffer& buffer = plan_.buffers[access.buffer];
    const ShardKey key = KeyOf(buffer.content);
    const uint64_t address = buffer.offset + access.offset;
    const int64_t shift = static_cast<int64_t>(buffer.content.first_byte - buffer.offset);
    std::optional<std::string> fault;
    memory(buffer.space)
        .Visit(address, address + access.bytes, [&](uint64_t b, uint64_t e, Run run) {
          if (fault) return;
          if (run.version == kUndefined) {
            fault = "bytes that nothing has written";
          } else if (run.key != key || run.shift != shift) {
            fault = fmt::format("{} bytes of another place", ShardKindName(run.key.kind));
          } else {
            newest_[key].Visit(b + shift, e + shift, [&](uint64_t, uint64_t, const Run& newest) {
              if (newest.version != run.version) fault = "an old version";
            });
          }
        });
    if (!fault) return Status::Ok();
    return Status::Failed(fmt::format("reads {} where it expects {} of group {}: {}", *fault,
                                      ShardKindName(key.kind), static_cast<int>(key.group),
                                      Describe(plan_, op)));
  }

  // This rank's part is copied; what comes from the others is new here.
  Status Gather(const Op& op, uint64_t version) {
    const Access& own = op.accesses[0];
    const Access& whole = op.accesses[1];
    const Buffer& to = plan_.buffers[whole.buffer];
    const uint64_t own_begin = plan_.buffers[own.buffer].content.first_byte + own.offset;
    const uint64_t begin = to.content.first_byte + whole.offset;
    const uint64_t place = own_begin - begin;  // of this rank's part, in the destination
    if (own_begin < begin || place + own.bytes > whole.bytes) {
      return Status::Failed("gathers into a place without this rank's part: " +
                            Describe(plan_, op));
    }
    Define(to, whole.offset, place, version);
    Define(to, whole.offset + place + own.bytes, whole.bytes - place - own.bytes, version);
    Op copy = op;
    copy.accesses[1] = {whole.buffer, whole.offset + place, own.bytes, AccessMode::kWrite};
    return Copy(copy);
  }

  // The destination now holds what the source holds; it must be the same bytes of the same shard.
  Status Copy(const Op& op) {
    const Access& source = op.accesses[0];
    const Access& destination = op.accesses[1];
    const Buffer& from = plan_.buffers[source.buffer];
    const Buffer& to = plan_.buffers[destination.buffer];
    if (KeyOf(from.content) != KeyOf(to.content) ||
        from.content.first_byte + source.offset != to.content.first_byte + destination.offset) {
      return Status::Failed("copies bytes to another place of the shard: " + Describe(plan_, op));
    }
    const uint64_t begin = from.offset + source.offset;
    const int64_t move = static_cast<int64_t>(to.offset + destination.offset - begin);
    std::vector<std::pair<uint64_t, Run>> copied;
    memory(from.space).Visit(begin, begin + source.bytes, [&](uint64_t b, uint64_t e, Run run) {
      run.end = e;
      copied.emplace_back(b, run);
    });
    for (auto& [b, run] : copied) {
      run.shift -= move;
      memory(to.space).Assign(b + move, run.end + move, run);
    }
    return Status::Ok();
  }

  RunMap& memory(Space space) { return memory_[static_cast<int>(space)]; }

  const StepPlan& plan_;
  std::array<RunMap, kSpaceCount> memory_;
  std::map<ShardKey, RunMap> newest_;
};

}  // namespace

Status CheckDefUse(const StepPlan& plan, std::span<const StepMask> masks) {
  DefUse state(plan);
  uint64_t version = 0;
  for (size_t turn = 0; turn < masks.size(); ++turn) {
    for (const Op& op : plan.ops) {
      ++version;
      if (!Active(op, masks[turn])) continue;
      MAREA_RETURN_IF_ERROR(
          state.Execute(op, version).WithContext(fmt::format("def-use, turn {}", turn)));
    }
  }
  return Status::Ok();
}

}  // namespace marea
