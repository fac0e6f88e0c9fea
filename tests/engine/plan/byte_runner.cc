#include "tests/engine/plan/byte_runner.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/engine/plan/op_bytes.h"

namespace marea {

ByteRunner::ByteRunner(VirtualClock& clock, const SerialRun& reference, const DelayOptions& options)
    : clock_(clock), reference_(reference), options_(options), random_(options.seed) {}

void ByteRunner::Start(const OpCall& call, Completion done) {
  const Op& op = call.op();
  const uint64_t read_hash = HashReads(op, call.spans);
  const uint64_t pure_hash = HashPureReads(op, call.spans);
  if (read_hash != reference_.read_hash(call.turn, call.op_index)) {
    done(Fail(fmt::format("turn {}, reads other bytes than the serial run: {}", call.turn,
                          Describe(*call.plan, op))));
    return;
  }
  const bool fails = ++op_count_ == fail_op_;
  const bool writes_late = Chance(0.5);
  if (writes_late) {
    SpoilWritten(op, call.spans);
  } else {
    WriteResult(op, call.op_index, read_hash, call.spans);
  }
  After([this, call, done = std::move(done), read_hash, pure_hash, writes_late, fails] {
    const Status status = EndOp(call, read_hash, pure_hash, writes_late);
    done(fails ? Status::Failed("the engine gave up") : status);
  });
}

Status ByteRunner::EndOp(const OpCall& call, uint64_t read_hash, uint64_t pure_hash,
                         bool writes_late) {
  const Op& op = call.op();
  if (HashPureReads(op, call.spans) != pure_hash) {
    return Fail(fmt::format("turn {}, bytes change while they are read: {}", call.turn,
                            Describe(*call.plan, op)));
  }
  if (writes_late) {
    WriteResult(op, call.op_index, read_hash, call.spans);
  } else if (!HoldsResult(op, call.op_index, read_hash, call.spans)) {
    return Fail(fmt::format("turn {}, bytes are overwritten while their op runs: {}", call.turn,
                            Describe(*call.plan, op)));
  }
  return Status::Ok();
}

void ByteRunner::Start(std::span<std::byte> destination, std::span<const std::byte> source,
                       CopyDirection /*direction*/, Completion done) {
  const bool copies_late = Chance(0.5);
  if (copies_late) {
    std::memset(destination.data(), 0x5a, destination.size());
  } else {
    std::memcpy(destination.data(), source.data(), source.size());
  }
  After([this, destination, source, done = std::move(done), copies_late] {
    if (copies_late) std::memcpy(destination.data(), source.data(), source.size());
    const bool same = std::memcmp(destination.data(), source.data(), source.size()) == 0;
    done(same ? Status::Ok() : Fail("a copy's source or destination changes while it runs"));
  });
}

Status ByteRunner::Fail(std::string what) {
  if (failure_.empty()) failure_ = what;
  return Status::Failed(std::move(what));
}

void ByteRunner::After(VirtualClock::Event event) {
  if (Chance(options_.inline_probability)) {
    event();
    return;
  }
  const auto longest = Chance(options_.long_probability) ? options_.long_max : options_.usual_max;
  clock_.ScheduleAfter(random_() % (longest + 1), std::move(event));
}

}  // namespace marea
