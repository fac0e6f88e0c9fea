#include "tests/engine/plan/byte_runner.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "tests/engine/plan/op_bytes.h"

namespace marea {

ByteRunner::ByteRunner(VirtualClock& clock, const SerialRun& reference, const DelayOptions& options,
                       const LaunchDepth& depth)
    : clock_(clock),
      reference_(reference),
      options_(options),
      random_(options.seed),
      streams_(clock, depth) {}

void ByteRunner::Start(const OpCall& call, Completion done) {
  InLane(call.op().lane, &call, std::move(done),
         [this, call](Completion end) { RunOp(call, std::move(end)); });
}

void ByteRunner::InLane(Lane lane, const OpCall* call, Completion done,
                        std::function<void(Completion)> run) {
  if (!streams_.Has(lane)) {
    run(std::move(done));
    return;
  }
  // The op's own delay ends exactly when its time in the stream does.
  const uint64_t duration = Delay();
  auto over = std::make_shared<std::function<void()>>();
  streams_.Run(
      lane, call, Delay(), duration, [done] { done.Launched(); },
      [this, run = std::move(run), done, over] {
        stream_end_ = over.get();
        run([done](Status status) { done(std::move(status)); });
        stream_end_ = nullptr;
      },
      [over] {
        if (*over) (*over)();
      });
}

void ByteRunner::RunOp(const OpCall& call, Completion done) {
  const EngineOp engine(call.op(), call.spans);
  const Op& op = engine.op;
  const uint64_t read_hash = HashReads(op, engine.spans);
  const uint64_t pure_hash = HashPureReads(op, engine.spans);
  if (read_hash != reference_.read_hash(call.turn, call.op_index)) {
    done(Fail(fmt::format("turn {}, reads other bytes than the serial run: {}", call.turn,
                          Describe(*call.plan, op))));
    return;
  }
  const bool fails = ++op_count_ == fail_op_;
  const bool writes_late = Chance(0.5);
  if (writes_late) {
    SpoilWritten(op, engine.spans);
  } else {
    WriteResult(op, call.op_index, read_hash, engine.spans);
  }
  After([this, call, done = std::move(done), read_hash, pure_hash, writes_late, fails] {
    const Status status = EndOp(call, read_hash, pure_hash, writes_late);
    done(fails ? Status::Failed("the engine gave up") : status);
  });
}

Status ByteRunner::EndOp(const OpCall& call, uint64_t read_hash, uint64_t pure_hash,
                         bool writes_late) {
  const EngineOp engine(call.op(), call.spans);
  const Op& op = engine.op;
  if (HashPureReads(op, engine.spans) != pure_hash) {
    return Fail(fmt::format("turn {}, bytes change while they are read: {}", call.turn,
                            Describe(*call.plan, op)));
  }
  if (writes_late) {
    WriteResult(op, call.op_index, read_hash, engine.spans);
  } else if (!HoldsResult(op, call.op_index, read_hash, engine.spans)) {
    return Fail(fmt::format("turn {}, bytes are overwritten while their op runs: {}", call.turn,
                            Describe(*call.plan, op)));
  }
  return Status::Ok();
}

void ByteRunner::Start(std::span<std::byte> destination, std::span<const std::byte> source,
                       CopyDirection direction, const OpCall* call, Completion done) {
  InLane(direction == CopyDirection::kToDevice ? Lane::kH2d : Lane::kD2h, call, std::move(done),
         [=, this](Completion end) { RunCopy(destination, source, std::move(end)); });
}

void ByteRunner::RunCopy(std::span<std::byte> destination, std::span<const std::byte> source,
                         Completion done) {
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

uint64_t ByteRunner::Delay() {
  const auto longest = Chance(options_.long_probability) ? options_.long_max : options_.usual_max;
  return random_() % (longest + 1);
}

void ByteRunner::After(VirtualClock::Event event) {
  if (stream_end_ != nullptr) {
    *stream_end_ = std::move(event);
  } else if (Chance(options_.inline_probability)) {
    event();
  } else {
    clock_.ScheduleAfter(Delay(), std::move(event));
  }
}

}  // namespace marea
