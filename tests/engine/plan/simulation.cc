#include "tests/engine/plan/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace marea {
namespace {

constexpr auto kGuard = std::byte{0xc7};
constexpr Space kMemorySpaces[] = {Space::kVram, Space::kRam, Space::kScalar};

std::vector<StorePath> Paths(uint32_t count) {
  std::vector<StorePath> paths;
  for (uint32_t i = 0; i < count; ++i) {
    paths.push_back({.path = fmt::format("/drive/{}", i), .bytes_max = kGiB, .weight = 1.0 + i});
  }
  return paths;
}

}  // namespace

GuardedArena::GuardedArena(uint64_t bytes)
    : bytes_(bytes),
      memory_(static_cast<std::byte*>(
          ::operator new[](bytes + 2 * kPageBytes, std::align_val_t{kPageBytes}))) {
  std::memset(memory_.get(), static_cast<int>(kGuard), bytes + 2 * kPageBytes);
}

void GuardedArena::PageDeleter::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, std::align_val_t{kPageBytes});
}

bool GuardedArena::GuardsIntact() const {
  const auto intact = [](const std::byte* page) {
    return std::all_of(page, page + kPageBytes, [](std::byte byte) { return byte == kGuard; });
  };
  return intact(memory_.get()) && intact(begin() + bytes_);
}

Simulation::Simulation(const StepPlan& plan, const SerialRun& reference,
                       std::vector<StepMask> masks, const SimulationOptions& options)
    : plan_(plan),
      reference_(reference),
      masks_(std::move(masks)),
      options_(options),
      random_(options.seed),
      table_(MakeChunkTable(plan)),
      runner_(clock_, reference, options.delays, options.launch_depth),
      stats_(plan, [this] { return seconds(); }),
      bounce_(RoundUp(table_.chunk_bytes_max(), kPageBytes)),
      order_(plan, masks_, options.launch_depth) {
  MakeStores();
  for (const Space space : kMemorySpaces) {
    arenas_.emplace_back(plan.space_bytes[static_cast<size_t>(space)]);
    bases_[static_cast<size_t>(space)] = arenas_.back().begin();
  }
  swapper_ = std::make_unique<Swapper>(SwapperParts{plan_, table_, &io_, runner_, runner_});
  access_ = std::make_unique<ShardAccess>(*swapper_, bases_, bounce_.span(), [this] {
    MAREA_CHECK(Advance(), "a transfer of a home never ends");
  });
}

void Simulation::MakeStores() {
  layout_ = LayOutStore(table_, Paths(options_.path_count), options_.slots).value();
  for (uint32_t path = 0; path < options_.path_count; ++path) {
    FaultyDeviceOptions device = options_.device;
    device.seed = options_.seed * 31 + path;
    device.file_bytes = {layout_.paths[path].file_bytes};
    devices_.push_back(std::make_unique<FaultyBlockDevice>(clock_, std::move(device)));
    stores_.push_back(std::make_unique<TierStore>(table_, layout_.paths[path], options_.slots,
                                                  *devices_.back(), 0));
  }
}

// One thing happens; false if nothing is left to happen.
bool Simulation::Advance() {
  bool any = false;
  for (const auto& store : stores_) any |= store->Poll(ReapWait::kNo) > 0;
  return any || clock_.RunNext();
}

Status Simulation::Run() {
  MAREA_RETURN_IF_ERROR(Initialise().WithContext("initialisation"));
  PlanFailure();
  MAREA_RETURN_IF_ERROR(RunTurns());
  if (options_.failure == Failure::kNone) MAREA_RETURN_IF_ERROR(CheckHomes());
  const RunEnd end = options_.failure == Failure::kNone ? RunEnd::kComplete : RunEnd::kCutShort;
  MAREA_RETURN_IF_ERROR(swapper_->Shutdown(end).WithContext("shutdown"));
  for (const GuardedArena& arena : arenas_) {
    if (!arena.GuardsIntact()) return Status::Failed("bytes were written outside an arena");
  }
  return bounce_.GuardsIntact() ? Status::Ok() : Status::Failed("a chunk leaves its bounce buffer");
}

Status Simulation::Initialise() {
  for (const SerialRun::Initial& initial : reference_.initial()) {
    const Buffer& buffer = plan_.buffers[initial.buffer];
    if (buffer.content.kind == ShardKind::kScalar) {
      std::memcpy(bases_[static_cast<size_t>(buffer.space)] + buffer.offset, initial.bytes.data(),
                  initial.bytes.size());
      continue;
    }
    MAREA_RETURN_IF_ERROR(access_->Write(buffer.content.kind, buffer.content.group,
                                         buffer.content.first_byte, initial.bytes));
  }
  if (options_.commits_first) {
    for (const auto& store : stores_) store->MarkCommitted();
  }
  return Status::Ok();
}

// Faults begin after initialisation.
void Simulation::PlanFailure() {
  const auto fail = [&](const ChunkHome& home, uint32_t path, FaultCount count) {
    for (uint32_t slot = 0; slot < home.slot_count; ++slot) {
      for (const IoDirection direction : {IoDirection::kRead, IoDirection::kWrite}) {
        devices_[path]->FailRange(0, direction, home.slot_offset[slot], home.bytes, EIO, count);
      }
    }
  };
  for (uint32_t path = 0; options_.eio_once && path < devices_.size(); ++path) {
    for (const ChunkHome& home : layout_.paths[path].homes) fail(home, path, FaultCount::kOnce);
  }
  const auto any_chunk = [&](auto&& fits) {
    std::vector<uint32_t> chunks;
    for (uint32_t i = 0; i < table_.entries.size(); ++i) {
      if (fits(table_.entries[i].id)) chunks.push_back(i);
    }
    return chunks.empty() ? kNone : chunks[random_() % chunks.size()];
  };
  const bool rots = options_.failure == Failure::kBitRot;
  if (rots || options_.failure == Failure::kEioAlways) {
    // Rot is found by the first read; what is written first would hide it.
    const uint32_t chunk = any_chunk([&](const ShardChunk& id) {
      return !rots || (id.kind != ShardKind::kGradient && id.kind != ShardKind::kPartial);
    });
    if (chunk == kNone) return;
    const uint32_t path = layout_.path_of_chunk[chunk];
    const ChunkHome& home = layout_.paths[path].homes[layout_.local_of_chunk[chunk]];
    failure_words_ = {layout_.paths[path].path, Describe(table_.entries[chunk].id)};
    if (rots) {
      const uint64_t slot = home.slot_offset[stores_[path]->current_slot(chunk)];
      devices_[path]->FlipBit(0, slot + random_() % home.bytes, static_cast<int>(random_() % 8));
      failure_words_.push_back("checksum");
    } else {
      fail(home, path, FaultCount::kAlways);
      failure_words_.push_back("offset");
    }
  } else if (options_.failure == Failure::kEngineOp) {
    runner_.FailEngineOp(1 + random_() % 100);
    failure_words_ = {"the engine gave up"};
  } else if (options_.failure == Failure::kCancel) {
    cancel_at_ = clock_.now() + random_() % 20'000'000;
    failure_words_ = {"the user said stop"};
  }
}

Status Simulation::RunTurns() {
  Executor::Options options;
  options.bases = bases_;
  options.clock = [this] { return seconds(); };
  options.observers = {&order_, &stats_};
  options.launch_depth = options_.launch_depth;
  Executor executor(plan_, *swapper_, options);
  if (cancel_at_) {
    clock_.Schedule(*cancel_at_, [&] { executor.Cancel(Status::Cancelled("the user said stop")); });
  }
  for (const StepMask& mask : masks_) {
    const uint64_t turn = executor.Enqueue(mask);
    while (!executor.failed() && executor.turns_retired() + options_.turns_ahead < turn + 1 &&
           Advance()) {
    }
  }
  while (Advance()) {
  }
  // Order first: it explains wrong bytes.
  if (!order_.failure().empty()) return Status::Failed(order_.failure());
  if (!runner_.failure().empty()) return Status::Failed(runner_.failure());
  if (order_.in_flight() > 0) return Status::Failed("ops never end:" + order_.Standing());
  if (executor.failed()) return CheckFailure(executor);
  return CheckEnd(executor);
}

// Nothing is left to happen and nothing has failed.
Status Simulation::CheckEnd(const Executor& executor) const {
  if (!failure_words_.empty()) {
    // An early end is the one excuse: the turns had fewer ops, or took less time.
    const bool spared = (options_.failure == Failure::kEngineOp && runner_.op_count() < 100) ||
                        options_.failure == Failure::kCancel;
    if (!spared) return Status::Failed("the planned failure went unnoticed");
  }
  if (executor.turns_retired() < masks_.size() || !order_.AllDone()) {
    return Status::Failed("the run hangs:" + order_.Standing());
  }
  return Status::Ok();
}

Status Simulation::CheckFailure(Executor& executor) {
  const Status status = executor.Drain();  // does not block: nothing is in flight
  const Status again = executor.WaitForTurn(masks_.size() - 1);
  if (failure_words_.empty()) return status;
  for (const std::string& word : failure_words_) {
    if (status.message().find(word) == std::string::npos) {
      return Status::Failed(fmt::format("'{}' is missing in: {}", word, status.message()));
    }
  }
  if (again.message() != status.message()) {
    return Status::Failed("a run fails with two Statuses: " + again.message());
  }
  for (const auto& store : stores_) {
    if (store->pending() > 0) return Status::Failed("transfers outlive the run");
  }
  return Status::Ok();
}

Status Simulation::CheckHomes() {
  for (uint32_t i = 0; i < plan_.buffers.size(); ++i) {
    const Buffer& buffer = plan_.buffers[i];
    if (buffer.ring != kHomeRing || buffer.content.kind > ShardKind::kGradient) continue;
    std::vector<std::byte> found(buffer.bytes);
    MAREA_RETURN_IF_ERROR(
        access_->Read(buffer.content.kind, buffer.content.group, buffer.content.first_byte, found)
            .WithContext("homes"));
    const std::span<const std::byte> expected = reference_.buffer(i);
    if (found.size() != expected.size() || found.empty() ||
        std::memcmp(found.data(), expected.data(), found.size()) != 0) {
      return Status::Failed(fmt::format("{} of group {} ends with other bytes than the serial run",
                                        ShardKindName(buffer.content.kind), buffer.content.group));
    }
  }
  return Status::Ok();
}

}  // namespace marea
