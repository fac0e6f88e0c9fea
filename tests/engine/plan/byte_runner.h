// The engine and the copy streams of the simulation, on the virtual clock.
//
// An op takes a random time. It reads when it starts, and writes either at once or at its very end;
// in the second case it spoils what it will write as it starts. When it ends, what it read must not
// have changed meanwhile, and what it wrote must still be there. Copies are held to the same. So a
// neighbour that comes too early or too late meets, or makes, wrong bytes. Lanes with a launch
// depth are streams of a GPU: their ops are launched ahead, and begin when the stream gets to them.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "swap/device_copy.h"
#include "swap/op_runner.h"
#include "tests/engine/plan/serial_run.h"
#include "tests/fakes/fake_streams.h"
#include "tests/fakes/virtual_clock.h"

namespace marea {

struct DelayOptions {
  uint64_t seed = 0;
  VirtualClock::Nanoseconds usual_max = 100'000;
  VirtualClock::Nanoseconds long_max = 10'000'000;
  double long_probability = 0.02;
  double inline_probability = 0.03;  // the op ends before Start has returned
};

class ByteRunner final : public OpRunner, public DeviceCopy {
 public:
  // All outlive the runner.
  ByteRunner(VirtualClock& clock, const SerialRun& reference, const DelayOptions& options,
             const LaunchDepth& depth = {});

  void Start(const OpCall& call, Completion done) override;
  void Start(std::span<std::byte> destination, std::span<const std::byte> source,
             CopyDirection direction, const OpCall* call, Completion done) override;

  // The engine op with this number, counted from 1, fails.
  void FailEngineOp(uint64_t number) { fail_op_ = number; }

  uint64_t op_count() const { return op_count_; }
  const std::string& failure() const { return failure_; }  // the first wrong byte; empty: none

 private:
  void RunOp(const OpCall& call, Completion done);
  void RunCopy(std::span<std::byte> destination, std::span<const std::byte> source,
               Completion done);
  // Calls `run` with a completion, at once or when the stream gets there.
  void InLane(Lane lane, const OpCall* call, Completion done, std::function<void(Completion)> run);
  Status Fail(std::string what);
  Status EndOp(const OpCall& call, uint64_t read_hash, uint64_t pure_hash, bool writes_late);
  uint64_t Delay();
  void After(VirtualClock::Event event);
  bool Chance(double probability) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  }

  VirtualClock& clock_;
  const SerialRun& reference_;
  const DelayOptions options_;
  std::mt19937_64 random_;
  FakeStreams streams_;
  // Where an op that begins in a stream leaves what happens at its end; null outside.
  std::function<void()>* stream_end_ = nullptr;
  uint64_t op_count_ = 0;
  uint64_t fail_op_ = 0;
  std::string failure_;
};

}  // namespace marea
