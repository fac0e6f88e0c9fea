// Micro-benchmarks of swap, and the swapper end to end beside the drive alone.
//
//   BM_Checksum, BM_StagingCopy   what each chunk costs on its way
//   BM_Raw                        as many bytes through io alone, 1 MiB x 32: half reads, half
//                                 writes, each in order, from one slot to the other
//   BM_Turns/update               every optimizer state through executor, swapper, staging and
//                                 checksums, with the optimizer itself done at once
//   BM_Turns/step                 a whole training step, in whose backward the drive rests
//
// So BM_Turns/update over BM_Raw is the share of the drive that the swapper makes use of; run them
// in turns and compare medians:
//
//   for i in 1 2 3 4 5; do build/bench/swap_bench --benchmark_filter='Raw|Turns'; done
//
// MAREA_BENCH_DIR names the folder (default: the current one); it must be on a drive.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_arena.h"
#include "engine/plan/plan_compiler.h"
#include "engine/plan/plan_totals.h"
#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/pinned_arena.h"
#include "io/steady_seconds.h"
#include "io/units.h"
#include "swap/executor.h"
#include "swap/memcpy_device_copy.h"
#include "swap/nvme_tier.h"
#include "swap/shard_access.h"
#include "swap/swap_stats.h"
#include "swap/swapper.h"

namespace marea {
namespace {

constexpr uint64_t kRequestBytes = kMiB;
constexpr uint32_t kQueueDepth = 32;
constexpr uint64_t kRawBuffers = 128;  // as many MiB as BM_Turns stages in: more than caches hold
constexpr uint64_t kStateBytes = kGiB + kGiB / 4;  // what BM_Turns reads and writes in a turn
constexpr int kTurns = 4;                          // of an iteration

std::string BenchFolder() {
  const char* const folder = std::getenv("MAREA_BENCH_DIR");
  return folder == nullptr ? "." : folder;
}

PinnedArena MakeFilledArena(uint64_t bytes) {
  PinnedArena arena = MakeArena(bytes);
  std::memset(arena.bytes().data(), 0x3c, arena.bytes().size());
  return arena;
}

void BM_Checksum(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const PinnedArena arena = MakeFilledArena(bytes);
  for (auto _ : state) benchmark::DoNotOptimize(XXH3_64bits(arena.bytes().data(), bytes));
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}
BENCHMARK(BM_Checksum)->Arg(64 << 10)->Arg(8 << 20)->Arg(256 << 20);

// One copy from RAM to where VRAM is an arena in RAM, and the word that it has ended.
void BM_StagingCopy(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const PinnedArena from = MakeFilledArena(bytes);
  const PinnedArena to = MakeFilledArena(bytes);
  MemcpyDeviceCopy copies;
  for (auto _ : state) {
    Mutex mutex;
    CondVar changed;
    bool done = false;
    copies.Start(to.bytes(), from.bytes(), CopyDirection::kToDevice, nullptr, [&](const Status&) {
      MutexLock lock(mutex);
      done = true;
      changed.NotifyAll();
    });
    MutexLock lock(mutex);
    while (!done) changed.Wait(mutex);
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}
BENCHMARK(BM_StagingCopy)->Arg(64 << 10)->Arg(8 << 20)->Arg(256 << 20)->UseRealTime();

void BM_Raw(benchmark::State& state) {
  const std::string path = BenchFolder() + "/marea-swap-bench.data";
  DataFile file = DataFile::Create(path, 2 * kStateBytes).value();
  const PinnedArena arena = MakeFilledArena(kRawBuffers * kRequestBytes);
  const std::array files = {DeviceFile{file.fd(), file.path()}};
  const std::array buffers = {arena.bytes()};
  BlockDeviceOptions options;
  options.queue_depth = kQueueDepth;
  options.request_bytes = kRequestBytes;
  const std::unique_ptr<BlockDevice> device = MakeBlockDevice(files, buffers, options).value();
  std::vector<IoCompletion> done(kQueueDepth, IoCompletion{0, Status::Ok()});
  uint64_t count = 0;
  // Requests in flight are fewer than buffers, and end nearly in order.
  const auto submit = [&] {
    // As in a store: a turn reads what the one before wrote.
    const bool reads = count % 2 == 0;
    const uint64_t done_bytes = count / 2 * kRequestBytes;
    const uint64_t slot_begin = (done_bytes / kStateBytes + (reads ? 0 : 1)) % 2 * kStateBytes;
    const IoRequest request = {reads ? IoDirection::kRead : IoDirection::kWrite,
                               0,
                               slot_begin + done_bytes % kStateBytes,
                               arena.bytes().data() + count % kRawBuffers * kRequestBytes,
                               kRequestBytes,
                               count};
    ++count;
    if (!device->Submit(std::span(&request, 1)).ok()) state.SkipWithError("submit");
  };
  uint64_t bytes = 0;
  for (auto _ : state) {
    const uint64_t end = count + 2 * kTurns * kStateBytes / kRequestBytes;
    for (uint64_t i = 0; i < kQueueDepth; ++i) submit();
    while (device->in_flight() > 0) {
      const size_t reaped = device->Reap(done, ReapWait::kUntilOne);
      for (size_t i = 0; i < reaped; ++i) {
        if (!done[i].status.ok()) state.SkipWithError(done[i].status.message().c_str());
        bytes += kRequestBytes;
        if (count < end) submit();
      }
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
  static_cast<void>(file.Unlink());
}
BENCHMARK(BM_Raw)->UseRealTime()->Unit(benchmark::kMillisecond);

// 16 layers of 8 Mi parameters in bf16, optimizer states on NVMe: 1.34 GB each way a step.
struct StepCase {
  StepCase() {
    constexpr uint32_t kLayers = 16;
    const auto add_group = [&](uint64_t elements) {
      GroupShape group;
      group.elements = group.parameters = elements;
      model.groups.push_back(group);
      return static_cast<uint32_t>(model.groups.size() - 1);
    };
    const auto add_block = [&](BlockKind kind, std::vector<uint32_t> groups) {
      BlockShape block{};
      block.kind = kind;
      block.groups = std::move(groups);
      if (kind != BlockKind::kEmbedding) block.input_bytes = kMiB;
      if (kind != BlockKind::kHead) block.output_bytes = kMiB;
      model.blocks.push_back(block);
    };
    add_block(BlockKind::kEmbedding, {add_group(kGroupAlignElements)});
    for (uint32_t i = 0; i < kLayers; ++i) add_block(BlockKind::kLayer, {add_group(8 << 20)});
    add_block(BlockKind::kHead, {add_group(kGroupAlignElements), add_group(kGroupAlignElements)});
    for (const GroupShape& group : model.groups) model.parameters += group.parameters;

    spec.model = &model;
    spec.chunk_elements = 2 << 20;
    for (size_t group = 0; group < model.groups.size(); ++group) {
      auto& homes = spec.placement.homes.emplace_back();
      homes.fill(Tier::kRam);
      for (const ShardKind kind : {ShardKind::kMasterLow, ShardKind::kMoment1, ShardKind::kMoment2})
        homes[static_cast<size_t>(kind)] = Tier::kNvme;
    }
    const RingMinimum least = MinimumRings(spec);
    spec.weight_ring_bytes = 2 * least.weight_bytes;
    spec.accumulator_ring_bytes = 2 * least.accumulator_bytes;
    spec.staging_ring_bytes = 4 * least.staging_bytes;
    spec.activation_ring_bytes = 2 * least.activation_bytes;
    spec.optimizer_ring_bytes = least.optimizer_bytes;
  }

  ModelShape model;
  PlanSpec spec;
};

class InstantEngine final : public OpRunner {
 public:
  void Start(const OpCall& /*call*/, Completion done) override { done(Status::Ok()); }
};

Status Initialise(const StepPlan& plan, ShardAccess& access) {
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.ring != kHomeRing || buffer.content.kind >= ShardKind::kGradient) continue;
    const std::vector<std::byte> bytes(buffer.bytes, std::byte{1});
    MAREA_RETURN_IF_ERROR(
        access.Write(buffer.content.kind, buffer.content.group, buffer.content.first_byte, bytes));
  }
  return Status::Ok();
}

void BM_Turns(benchmark::State& state, StepMask mask) {
  const StepCase step;
  const StepPlan plan = CompileStepPlan(step.spec).value();
  const ChunkTable table = MakeChunkTable(plan);
  const auto space = [&](Space which) { return plan.space_bytes[static_cast<size_t>(which)]; };
  const PinnedArena vram = MakeFilledArena(space(Space::kVram));
  const PinnedArena ram = MakeFilledArena(space(Space::kRam));
  const PinnedArena scalars = MakeFilledArena(space(Space::kScalar));
  const PinnedArena bounce = MakeFilledArena(table.chunk_bytes_max());
  std::array<std::byte*, kSpaceCount> bases{};
  bases[static_cast<size_t>(Space::kVram)] = vram.bytes().data();
  bases[static_cast<size_t>(Space::kRam)] = ram.bytes().data();
  bases[static_cast<size_t>(Space::kScalar)] = scalars.bytes().data();
  const std::array buffers = {ram.bytes(), bounce.bytes()};
  const StorePath path{.path = BenchFolder(), .bytes_max = 16 * kGiB};
  NvmeTierOptions options;
  options.slots = 2;  // as a run has that can resume
  options.device.queue_depth = kQueueDepth;
  options.device.request_bytes = kRequestBytes;
  const std::unique_ptr<NvmeTier> tier =
      NvmeTier::Create(table, std::span(&path, 1), buffers, options).value();
  MemcpyDeviceCopy copies;
  InstantEngine engine;
  Swapper swapper({plan, table, tier.get(), copies, engine});
  ShardAccess access(swapper, bases, bounce.bytes());
  Status status = Initialise(plan, access);
  SwapStats stats(plan, SteadySeconds);
  Executor executor(plan, swapper, {.bases = bases, .clock = SteadySeconds, .observers = {&stats}});
  const auto turns = [&](const StepMask& each, int count) {
    for (int i = 0; i < count && status.ok(); ++i) {
      const uint64_t turn = executor.Enqueue(each);
      if (turn > 0) status = executor.WaitForTurn(turn - 1);
    }
  };
  turns({.train = true, .micro_count = 1}, 1);
  const SwapSnapshot before = stats.Snapshot();
  const double begin = SteadySeconds();
  for (auto _ : state) {
    turns(mask, kTurns);
    if (status.ok()) status = executor.WaitForTurn(executor.turns_retired());
  }
  const Status drained = executor.Drain();
  if (!status.ok() || !drained.ok()) {
    state.SkipWithError((status.ok() ? drained : status).message().c_str());
  }
  const PlannedLanes lanes = CountLanes(plan, mask);
  const uint64_t drive_bytes = lanes[static_cast<size_t>(Lane::kNvmeRead)].bytes +
                               lanes[static_cast<size_t>(Lane::kNvmeWrite)].bytes;
  state.SetBytesProcessed(static_cast<int64_t>(drive_bytes) * kTurns * state.iterations());
  // The share of the time in which the lane had something under way.
  const SwapSnapshot moved = Difference(stats.Snapshot(), before);
  for (const Lane lane : {Lane::kNvmeRead, Lane::kNvmeWrite}) {
    state.counters[fmt::format("{}_busy", LaneName(lane))] =
        moved[static_cast<size_t>(lane)].busy_seconds / (SteadySeconds() - begin);
  }
  static_cast<void>(swapper.Shutdown());
  static_cast<void>(tier->Shutdown());
}
BENCHMARK_CAPTURE(BM_Turns, update, StepMask{.update = true})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Turns, step, StepMask{.update = true, .train = true, .micro_count = 1})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace marea

BENCHMARK_MAIN();
