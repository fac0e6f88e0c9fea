// A whole run of a plan on one thread: the real executor, swapper and tier store over simulated
// drives, copy streams and engine, all on one virtual clock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/status.h"
#include "io/units.h"
#include "swap/chunk_io.h"
#include "swap/device.h"
#include "swap/executor.h"
#include "swap/shard_access.h"
#include "swap/store_layout.h"
#include "swap/swap_stats.h"
#include "swap/swapper.h"
#include "swap/tier_store.h"
#include "tests/engine/plan/byte_runner.h"
#include "tests/engine/plan/serial_run.h"
#include "tests/fakes/faulty_block_device.h"
#include "tests/fakes/virtual_clock.h"
#include "tests/swap/order_checker.h"

namespace marea {

// Memory of exactly the bytes asked for, with a page on either side that must stay as it is.
class GuardedArena {
 public:
  explicit GuardedArena(uint64_t bytes);
  std::byte* begin() const { return memory_.get() + kPageBytes; }
  std::span<std::byte> span() const { return {begin(), bytes_}; }
  bool GuardsIntact() const;

 private:
  struct PageDeleter {
    void operator()(std::byte* bytes) const;
  };
  uint64_t bytes_;
  std::unique_ptr<std::byte[], PageDeleter> memory_;
};

// What can be made to go wrong for good in a run.
enum class Failure : uint8_t { kNone, kEioAlways, kBitRot, kEngineOp, kCancel };

struct SimulationOptions {
  uint64_t seed = 0;  // of every delay, order and fault
  uint32_t path_count = 1;
  uint32_t slots = 1;
  uint32_t turns_ahead = 1;    // turns enqueued beyond the oldest unfinished one
  bool commits_first = false;  // the first contents count as committed: updates go to other slots
  DelayOptions delays;
  FaultyDeviceOptions device;
  LaunchDepth launch_depth{};  // lanes that are streams of a GPU
  bool eio_once = false;       // every chunk's first transfer in each direction fails once
  Failure failure = Failure::kNone;
};

class Simulation {
 public:
  // `plan` and `reference` outlive the simulation; `reference` ran the same masks.
  Simulation(const StepPlan& plan, const SerialRun& reference, std::vector<StepMask> masks,
             const SimulationOptions& options);

  // Writes the first contents of every home, runs all turns, reads every home back and shuts down.
  // Ok, or a sentence on the first thing that is not as it must be. With a failure planned, Ok
  // means that the run ended as it should: with one Status that says what broke, nothing in flight,
  // no lease held.
  Status Run();

  uint64_t trace_hash() const { return order_.hash(); }
  uint64_t op_count() const { return order_.completed(); }
  double seconds() const { return static_cast<double>(clock_.now()) * 1e-9; }
  bool has_chunks() const { return !table_.entries.empty(); }

 private:
  // Transfers of each chunk go to the store of its path.
  struct StoreIo final : public ChunkIo {
    explicit StoreIo(Simulation& owner) : simulation(owner) {}
    void Start(const ChunkTransfer& transfer, ChunkDone done) override {
      simulation.stores_[simulation.layout_.path_of_chunk[transfer.chunk]]->Start(transfer,
                                                                                  std::move(done));
    }
    Simulation& simulation;
  };

  void MakeStores();
  Status Initialise();
  void PlanFailure();
  Status RunTurns();
  bool Advance();
  Status CheckEnd(const Executor& executor) const;
  Status CheckFailure(Executor& executor);
  Status CheckHomes();

  const StepPlan& plan_;
  const SerialRun& reference_;
  const std::vector<StepMask> masks_;
  const SimulationOptions options_;
  std::mt19937_64 random_;
  VirtualClock clock_;
  const ChunkTable table_;
  StoreLayout layout_;
  std::vector<std::unique_ptr<FaultyBlockDevice>> devices_;  // by path
  std::vector<std::unique_ptr<TierStore>> stores_;
  StoreIo io_{*this};
  ByteRunner runner_;
  SwapStats stats_;
  std::vector<GuardedArena> arenas_;  // vram, ram, scalar
  GuardedArena bounce_;
  std::array<std::byte*, kSpaceCount> bases_{};
  std::unique_ptr<Swapper> swapper_;
  std::unique_ptr<ShardAccess> access_;
  OrderChecker order_;
  std::vector<std::string> failure_words_;  // that the run's Status must hold
  std::optional<VirtualClock::Nanoseconds> cancel_at_;
};

}  // namespace marea
