#include "swap/swapper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/check.h"
#include "io/units.h"

namespace marea {
namespace {

// A drive moves whole pages: the value's own pages belong to it to the end.
std::span<std::byte> WholePages(std::span<std::byte> bytes) {
  return {bytes.data(), RoundUp(bytes.size(), kPageBytes)};
}

std::vector<uint32_t> MapOpsToChunks(const StepPlan& plan, const ChunkTable& chunks) {
  std::vector<uint32_t> op_chunk(plan.ops.size(), kNone);
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind != OpKind::kRead && op.kind != OpKind::kWrite) continue;
    const Access& access = op.accesses[op.kind == OpKind::kRead ? 0 : 1];
    const Content& content = plan.buffers[access.buffer].content;
    const auto chunk =
        chunks.Find(content.kind, content.group, content.index, content.first_byte + access.offset);
    MAREA_CHECK(chunk.has_value() && chunks.entries[*chunk].id.bytes == access.bytes,
                "the chunk table was made from another plan");
    op_chunk[i] = *chunk;
  }
  return op_chunk;
}

}  // namespace

Swapper::Swapper(const SwapperParts& parts)
    : parts_(parts),
      map_(MakeAccessMap(parts.plan)),
      op_chunk_(MapOpsToChunks(parts.plan, parts.chunks)),
      residency_(map_.rows),
      copies_(map_.copies.size()) {
  CheckStaging();
}

Swapper::~Swapper() {
  MutexLock lock(mutex_);
  MAREA_CHECK(in_flight_ == 0, "a swapper is destroyed with ops in flight");
  DropLeases();
}

void Swapper::CheckStaging() const {
  const StepPlan& plan = parts_.plan;
  std::vector<bool> is_staging(plan.rings.size(), false);
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    if (op_chunk_[i] == kNone) continue;
    MAREA_CHECK(parts_.chunk_io != nullptr, "a plan with homes on NVMe needs a ChunkIo");
    const Op& op = plan.ops[i];
    const Access& side = op.accesses[op.kind == OpKind::kRead ? 1 : 0];
    const Buffer& value = plan.buffers[side.buffer];
    const std::string message =
        "drives move whole pages between staging values: " + Describe(plan, op);
    MAREA_CHECK(value.space == Space::kRam && (value.offset + side.offset) % kPageBytes == 0,
                message.c_str());
    if (value.ring != kHomeRing) is_staging[value.ring] = true;
  }
  for (uint32_t ring = 0; ring < plan.rings.size(); ++ring) {
    if (!is_staging[ring]) continue;
    MAREA_CHECK(
        plan.rings[ring].offset % kPageBytes == 0 && plan.rings[ring].bytes % kPageBytes == 0,
        "a staging ring begins and ends on a page");
  }
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.ring == kHomeRing || !is_staging[buffer.ring]) continue;
    MAREA_CHECK(buffer.offset % kPageBytes == 0, "a staging value begins on a page");
  }
}

void Swapper::Start(const OpCall& call, Completion done) {
  Status status = Status::Ok();
  {
    MutexLock lock(mutex_);
    status = Begin(call);
    if (status.ok()) {
      ++in_flight_;
    } else {
      failed_ = true;
    }
  }
  if (!status.ok()) {
    done(status.WithContext("op refused: " + Describe(parts_.plan, call.op())));
    return;
  }
  RunOp(call,
        Completion([this, call, done](Status result) { Finish(call, std::move(result), done); },
                   [this, call, done] {
                     EndAtLaunch(call);
                     done.Launched();
                   }));
}

// Residency moves on, the op stays in flight.
void Swapper::EndAtLaunch(const OpCall& call) {
  MutexLock lock(mutex_);
  launched_.push_back({call.op_index, call.turn, End(call, true)});
}

void Swapper::Finish(const OpCall& call, Status result, const Completion& done) {
  {
    MutexLock lock(mutex_);
    const auto launched = std::find_if(launched_.begin(), launched_.end(), [&](const auto& op) {
      return op.op_index == call.op_index && op.turn == call.turn;
    });
    const bool ended_before = launched != launched_.end();
    Status ended = ended_before ? std::move(launched->ended) : End(call, result.ok());
    if (ended_before) launched_.erase(launched);
    if (result.ok() && !ended.ok()) {
      result = ended.WithContext("op ended wrongly: " + Describe(parts_.plan, call.op()));
    }
    if (!result.ok()) failed_ = true;
    --in_flight_;
  }
  done(std::move(result));
}

void Swapper::RunOp(const OpCall& call, Completion done) {
  const OpKind kind = call.op().kind;
  switch (kind) {
    case OpKind::kRead:
    case OpKind::kWrite: {
      const bool read = kind == OpKind::kRead;
      parts_.chunk_io->Start({.direction = read ? IoDirection::kRead : IoDirection::kWrite,
                              .chunk = op_chunk_[call.op_index],
                              .bytes = WholePages(call.spans[read ? 1 : 0])},
                             std::move(done));
      return;
    }
    case OpKind::kCopyIn:
    case OpKind::kCopyOut:
      parts_.device_copy.Start(
          call.spans[1], call.spans[0],
          kind == OpKind::kCopyIn ? CopyDirection::kToDevice : CopyDirection::kToHost, &call,
          std::move(done));
      return;
    default:
      parts_.engine.Start(call, std::move(done));
  }
}

Status Swapper::Begin(const OpCall& call) {
  const std::vector<Touch>& touches = map_.touches[call.op_index];
  for (size_t i = 0; i < touches.size(); ++i) {
    Status status = BeginTouch(call, touches[i]);
    if (status.ok()) continue;
    // The op does not run: what it has begun so far has failed.
    while (i-- > 0) EndTouch(touches[i], false);
    return status;
  }
  return Status::Ok();
}

Status Swapper::BeginTouch(const OpCall& call, const Touch& touch) {
  switch (touch.kind) {
    case TouchKind::kFetch:
      MAREA_RETURN_IF_ERROR(OpenCopy(call, touch.copy));
      return residency_.BeginFetch(touch.row, copies_[touch.copy].lease);
    case TouchKind::kSpread:
      MAREA_RETURN_IF_ERROR(ExpectCopy(call, touch.source_copy));
      MAREA_RETURN_IF_ERROR(OpenCopy(call, touch.copy));
      return residency_.BeginSpread(touch.row, copies_[touch.copy].lease);
    case TouchKind::kWriteBack:
      MAREA_RETURN_IF_ERROR(ExpectCopy(call, touch.source_copy));
      return residency_.BeginWriteBack(touch.row);
    case TouchKind::kUseHome:
      return residency_.BeginUseHome(touch.row);
    case TouchKind::kUseCopy:
      MAREA_RETURN_IF_ERROR(ExpectCopy(call, touch.copy));
      return residency_.BeginUseCopy(touch.row);
    case TouchKind::kChangeHome:
      return residency_.BeginChangeHome(touch.row);
    case TouchKind::kProduceHome:
      return residency_.BeginProduceHome(touch.row);
    case TouchKind::kChangeCopy:
      MAREA_RETURN_IF_ERROR(ExpectCopy(call, touch.copy));
      MAREA_RETURN_IF_ERROR(residency_.BeginChangeCopy(touch.row));
      copies_[touch.copy].valid = false;
      return Status::Ok();
    case TouchKind::kProduceCopy: {
      Copy& copy = copies_[touch.copy];
      if (!copy.lease || copy.turn != call.turn) {
        MAREA_RETURN_IF_ERROR(OpenCopy(call, touch.copy));
      }
      MAREA_RETURN_IF_ERROR(residency_.BeginProduceCopy(touch.row, copy.lease));
      copy.valid = false;
      return Status::Ok();
    }
  }
  return Status::Failed("an unknown touch");
}

Status Swapper::OpenCopy(const OpCall& call, uint32_t index) {
  Copy& copy = copies_[index];
  const CopyPlace& place = map_.copies[index];
  if (copy.lease) {
    return Status::Failed(
        fmt::format("{} is to be placed in buffer {}, where turn {} still holds it",
                    Describe(residency_.row(place.row).id), place.buffer, copy.turn));
  }
  copy.valid = false;
  copy.turn = call.turn;
  copy.ops_left = 0;
  for (const uint32_t op : place.ops) {
    if (Active(parts_.plan.ops[op], call.mask)) ++copy.ops_left;
  }
  return Status::Ok();
}

Status Swapper::ExpectCopy(const OpCall& call, uint32_t index) const {
  const Copy& copy = copies_[index];
  if (copy.lease && copy.valid && copy.turn == call.turn) return Status::Ok();
  const CopyPlace& place = map_.copies[index];
  const char* why = !copy.lease              ? "nothing was put there, or it was given up"
                    : copy.turn != call.turn ? "what is there belongs to another turn"
                                             : "it is being filled or changed";
  return Status::Failed(fmt::format("{} is expected in buffer {} in turn {}: {}",
                                    Describe(residency_.row(place.row).id), place.buffer, call.turn,
                                    why));
}

void Swapper::EndTouch(const Touch& touch, bool ok) {
  Copy* copy = touch.copy == kNone ? nullptr : &copies_[touch.copy];
  switch (touch.kind) {
    case TouchKind::kFetch:
      residency_.EndFetch(touch.row, copy->lease, ok);
      copy->valid = ok;
      return;
    case TouchKind::kSpread:
      residency_.EndSpread(touch.row, copy->lease, ok);
      copy->valid = ok;
      return;
    case TouchKind::kWriteBack:
      residency_.EndWriteBack(touch.row, ok);
      return;
    case TouchKind::kUseHome:
      residency_.EndUseHome(touch.row);
      return;
    case TouchKind::kUseCopy:
      residency_.EndUseCopy(touch.row);
      return;
    case TouchKind::kChangeHome:
    case TouchKind::kProduceHome:
      residency_.EndChangeHome(touch.row, ok);
      return;
    case TouchKind::kChangeCopy:
    case TouchKind::kProduceCopy:
      residency_.EndChangeCopy(touch.row, copy->lease, ok);
      copy->valid = ok;
      return;
  }
}

Status Swapper::End(const OpCall& call, bool ok) {
  Status first = Status::Ok();
  const std::vector<Touch>& touches = map_.touches[call.op_index];
  for (const Touch& touch : touches) EndTouch(touch, ok);
  for (const Touch& touch : touches) {
    for (const uint32_t index : {touch.copy, touch.source_copy}) {
      if (index == kNone) continue;
      Copy& copy = copies_[index];
      // A completion that comes late, for a value that has been reused since.
      MAREA_CHECK(copy.turn == call.turn && copy.ops_left > 0,
                  "an op ended in a ring value that was reused");
      if (--copy.ops_left > 0) continue;
      copy.valid = false;
      Status released = copy.lease.Release();
      if (first.ok() && !released.ok()) first = std::move(released);
    }
  }
  return first;
}

void Swapper::DropLeases() {
  for (Copy& copy : copies_) (void)copy.lease.Release();
}

Status Swapper::Shutdown(RunEnd end) {
  MutexLock lock(mutex_);
  if (in_flight_ > 0) {
    return Status::Failed(fmt::format("{} ops are in flight at shutdown", in_flight_));
  }
  if (failed_ || end == RunEnd::kCutShort) DropLeases();
  return residency_.CheckIdle();
}

std::vector<uint32_t> Swapper::RowsOf(ShardKind kind, uint32_t group, uint32_t index) const {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < map_.rows.size(); ++row) {
    const ShardChunk& id = map_.rows[row].id;
    const bool wanted = id.kind == kind && id.group == group && id.index == index;
    if (wanted && map_.homes[row].buffer != kNone) rows.push_back(row);
  }
  return rows;
}

Status Swapper::BeginHomeRead(uint32_t row) {
  MutexLock lock(mutex_);
  return residency_.BeginUseHome(row);
}

void Swapper::EndHomeRead(uint32_t row) {
  MutexLock lock(mutex_);
  residency_.EndUseHome(row);
}

Status Swapper::BeginHomeWrite(uint32_t row) {
  MutexLock lock(mutex_);
  return residency_.BeginProduceHome(row);
}

void Swapper::EndHomeWrite(uint32_t row, bool ok) {
  MutexLock lock(mutex_);
  residency_.EndChangeHome(row, ok);
}

}  // namespace marea
