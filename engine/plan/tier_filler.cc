#include "engine/plan/tier_filler.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/units.h"

namespace marea {
namespace {

constexpr ShardKind kStates[] = {ShardKind::kMasterLow, ShardKind::kMoment1, ShardKind::kMoment2};

class Filler {
 public:
  Filler(const TierLimits& limits, std::optional<Tier> weight_home, std::optional<Tier> state_home,
         PlanSpec& spec)
      : limits_(limits),
        weight_home_(weight_home),
        state_home_(state_home),
        spec_(spec),
        model_(*spec.model) {}

  Status Run() {
    StartEverythingOnNvme();
    MAREA_RETURN_IF_ERROR(ReserveVram());
    MAREA_RETURN_IF_ERROR(ReserveRam());
    FixHomes();
    MAREA_RETURN_IF_ERROR(CheckFixedHomes());
    GrowVramRings();
    if (limits_.vram_inside_ram) {
      Fill(Tier::kVram, {ShardKind::kWeight, ShardKind::kGradient});
      GrowStaging();
    } else {
      GrowStaging();
      MAREA_RETURN_IF_ERROR(GrowOptimizerRing());
      if (limits_.whole_groups_in_vram && !weight_home_ && !state_home_) FillWithWholeGroups();
    }
    Fill(Tier::kRam, {ShardKind::kWeight, ShardKind::kGradient, ShardKind::kMasterLow,
                      ShardKind::kMoment1, ShardKind::kMoment2});
    // On a GPU what is in VRAM without its states only saves what would go to NVMe.
    Fill(Tier::kVram, {ShardKind::kWeight, ShardKind::kGradient, ShardKind::kMasterLow,
                       ShardKind::kMoment1, ShardKind::kMoment2});
    SettleRings();
    return CheckNvme();
  }

 private:
  uint64_t GroupBytes(uint32_t group, ShardKind kind) const {
    return RoundUp(OwnedBytes(spec_, group, kind), kPageBytes);
  }
  // Of a group's weights on their way through compute: whole, whatever this rank owns.
  uint64_t SlotBytes(uint32_t group) const {
    return model_.groups[group].elements * ElementBytes(spec_, ShardKind::kWeight);
  }
  uint64_t ActivationBytes() const { return RoundUp(model_.blocks[1].input_bytes, kPageBytes); }

  void StartEverythingOnNvme() {
    spec_.placement.homes.assign(model_.groups.size(), {});
    for (auto& homes : spec_.placement.homes) homes.fill(Tier::kNvme);
    spec_.placement.partial = Tier::kRam;
    spec_.chunk_elements = limits_.chunk_elements_min;
  }

  // Takes from a tier's budget; VRAM inside RAM takes from both. False if it is not there.
  bool Take(Tier tier, uint64_t bytes) {
    if (Free(tier) < bytes) return false;
    if (tier == Tier::kVram) vram_used_ += bytes;
    if (tier == Tier::kRam || limits_.vram_inside_ram) ram_used_ += bytes;
    return true;
  }
  uint64_t Free(Tier tier) const {
    const uint64_t ram = limits_.ram_bytes - std::min(limits_.ram_bytes, ram_used_);
    if (tier == Tier::kRam) return ram;
    const uint64_t vram = limits_.vram_bytes - std::min(limits_.vram_bytes, vram_used_);
    return limits_.vram_inside_ram ? std::min(ram, vram) : vram;
  }

  // What any plan of this wave size needs in VRAM: rings at their least, activations, workspace.
  Status ReserveVram() {
    const RingMinimum least = MinimumRings(spec_);
    const uint64_t blocks = model_.blocks.size();
    const uint64_t kept =
        spec_.placement.activation == Tier::kVram ? (blocks - 1) * spec_.wave_size : 0;
    const uint64_t activations =
        (kept + spec_.wave_size) * ActivationBytes() + least.activation_bytes;
    spec_.weight_ring_bytes = least.weight_bytes;
    spec_.accumulator_ring_bytes = least.accumulator_bytes;
    spec_.activation_ring_bytes = least.activation_bytes;
    spec_.optimizer_ring_bytes = least.optimizer_bytes;
    const uint64_t needed = least.weight_bytes + least.accumulator_bytes + least.optimizer_bytes +
                            activations + limits_.workspace_bytes + limits_.vram_fixed_bytes;
    vram_used_ = needed;
    ram_used_ = limits_.ram_fixed_bytes + (limits_.vram_inside_ram ? needed : 0);
    if (needed <= limits_.vram_bytes) return Status::Ok();
    return Status::DoesNotFit(fmt::format(
        "--vram {} is too small: this model needs at least {} (weights of the largest block {}, "
        "its gradient sums {}, activations {}, workspace {}{}); pass --vram {} or lower the "
        "micro-batch or --sequence-length",
        FormatBytes(limits_.vram_bytes), FormatBytes(needed), FormatBytes(least.weight_bytes),
        FormatBytes(least.accumulator_bytes), FormatBytes(activations),
        FormatBytes(limits_.workspace_bytes),
        limits_.vram_fixed_bytes > 0
            ? fmt::format(", driver and libraries {}", FormatBytes(limits_.vram_fixed_bytes))
            : std::string(),
        UpToMiB(needed)));
  }

  static std::string UpToMiB(uint64_t bytes) {
    return fmt::format("{}MiB", DivideRoundUp(bytes, kMiB));
  }

  // And in RAM: staging for one chunk, sums that wait, activations that spill.
  Status ReserveRam() {
    const uint64_t staging = MinimumRings(spec_).staging_bytes;
    spec_.staging_ring_bytes = staging;
    uint64_t needed = staging;
    if (spec_.placement.activation == Tier::kRam) {
      needed += (model_.blocks.size() - 2) * spec_.wave_size * ActivationBytes();
    }
    const uint64_t partials = PartialBytes();
    if (ram_used_ + needed + partials > limits_.ram_bytes && limits_.nvme_bytes > 0) {
      spec_.placement.partial = Tier::kNvme;
    } else {
      needed += partials;
    }
    const uint64_t all = ram_used_ + needed;
    ram_used_ = all;
    if (all <= limits_.ram_bytes) return Status::Ok();
    return Status::DoesNotFit(fmt::format(
        "--ram {} is too small: this run needs at least {} (the process itself {}{}, staging "
        "{}{}); "
        "pass --ram {}{}",
        FormatBytes(limits_.ram_bytes), FormatBytes(all), FormatBytes(limits_.ram_fixed_bytes),
        limits_.vram_inside_ram ? fmt::format(", --vram's share {}", FormatBytes(vram_used_))
                                : std::string(),
        FormatBytes(staging),
        partials > 0 ? fmt::format(", gradient sums {}", FormatBytes(partials)) : std::string(),
        UpToMiB(all), limits_.nvme_bytes == 0 ? " or add --nvme PATH" : ""));
  }

  // fp32 sums that wait for another use or another wave.
  uint64_t PartialBytes() const {
    std::vector<uint32_t> uses(model_.groups.size(), 0);
    for (const BlockShape& block : model_.blocks) {
      for (const uint32_t group : block.groups) ++uses[group];
    }
    uint64_t bytes = 0;
    for (uint32_t group = 0; group < model_.groups.size(); ++group) {
      const uint32_t waiting = WaveCount(spec_) > 1 ? uses[group] : uses[group] - 1;
      bytes += GroupBytes(group, ShardKind::kPartial) * waiting;
    }
    return bytes;
  }

  bool Fixed(ShardKind kind) const {
    if (kind == ShardKind::kWeight) return weight_home_.has_value();
    return kind != ShardKind::kGradient && state_home_.has_value();
  }

  // Homes that the config names: taken first, whatever else there is.
  void FixHomes() {
    const auto fix = [&](ShardKind kind, Tier tier) {
      for (uint32_t group = 0; group < model_.groups.size(); ++group) {
        spec_.placement.home(group, kind) = tier;
        const uint64_t bytes = GroupBytes(group, kind);
        if (tier == Tier::kVram) vram_used_ += bytes;
        if (tier == Tier::kRam || (tier == Tier::kVram && limits_.vram_inside_ram)) {
          ram_used_ += bytes;
        }
      }
    };
    if (weight_home_) fix(ShardKind::kWeight, *weight_home_);
    if (state_home_) {
      for (const ShardKind kind : kStates) fix(kind, *state_home_);
    }
  }

  Status CheckFixedHomes() const {
    if (vram_used_ > limits_.vram_bytes) {
      return Status::DoesNotFit(fmt::format(
          "the config keeps shards in VRAM that need {}, but --vram is {}: offload them "
          "(zero_optimization.offload_param, offload_optimizer) or raise --vram",
          FormatBytes(vram_used_), FormatBytes(limits_.vram_bytes)));
    }
    if (ram_used_ > limits_.ram_bytes) {
      return Status::DoesNotFit(fmt::format(
          "the config keeps shards in RAM that need {} in all, but --ram is {}: set "
          "zero_optimization.offload_param.device or offload_optimizer.device to \"nvme\", or "
          "pass --ram {}",
          FormatBytes(ram_used_), FormatBytes(limits_.ram_bytes), UpToMiB(ram_used_)));
    }
    return Status::Ok();
  }

  // Two more blocks of weights ahead of compute, one more gradient behind it; with ranks, a whole
  // block's sums, which they add while the next block makes its own.
  void GrowVramRings() {
    const RingMinimum least = MinimumRings(spec_);
    uint64_t layer_weights = 0;
    for (const BlockShape& block : model_.blocks) {
      if (block.kind != BlockKind::kLayer) continue;
      uint64_t bytes = 0;
      for (const uint32_t group : block.groups) bytes += SlotBytes(group);
      layer_weights = std::max(layer_weights, bytes);
    }
    for (int slot = 0; slot < 2; ++slot) {
      if (least.weight_bytes > 0 && Take(Tier::kVram, layer_weights)) {
        spec_.weight_ring_bytes += layer_weights;
      }
    }
    const uint64_t parts = spec_.partition.world_size > 1 ? 1 : 2;
    const uint64_t behind = least.accumulator_bytes / parts / kPageBytes * kPageBytes;
    if (Take(Tier::kVram, behind)) spec_.accumulator_ring_bytes += behind;
  }

  // Larger chunks and more of them, within a share of RAM. Nothing to stage, nothing to grow.
  void GrowStaging() {
    const uint64_t share = Free(Tier::kRam) / limits_.staging_share;
    const uint64_t per_element = spec_.staging_ring_bytes / spec_.chunk_elements;
    const uint64_t before = spec_.staging_ring_bytes;
    uint64_t chunk = limits_.chunk_elements_max;
    while (chunk / 2 >= limits_.chunk_elements_min &&
           chunk * per_element * limits_.staged_chunks > share + before) {
      chunk /= 2;
    }
    chunk = std::max(RoundUp(chunk, kGroupAlignElements), limits_.chunk_elements_min);
    for (uint64_t count = limits_.staged_chunks; count > 0; --count) {
      const uint64_t wanted = chunk * per_element * count;
      if (wanted < before || !Take(Tier::kRam, wanted - before)) continue;
      spec_.chunk_elements = chunk;
      spec_.staging_ring_bytes = wanted;
      return;
    }
  }

  // Spreads groups that rest in VRAM with all their kinds evenly over the model; the GPU updates
  // them without a byte over the bus.
  void FillWithWholeGroups() {
    uint64_t wanted = 0;
    for (uint32_t group = 0; group < model_.groups.size(); ++group) wanted += AllBytes(group);
    const double share =
        std::min(1.0, static_cast<double>(Free(Tier::kVram)) / static_cast<double>(wanted));
    spec_.gpu_update.resize(model_.groups.size(), false);
    double owed = 0;
    for (uint32_t group = 0; group < model_.groups.size(); ++group) {
      const uint64_t bytes = AllBytes(group);
      owed += share * static_cast<double>(bytes);
      if (owed < 0.999 * static_cast<double>(bytes) || !Take(Tier::kVram, bytes)) continue;
      owed -= static_cast<double>(bytes);
      spec_.gpu_update[group] = true;
      for (const ShardKind kind : kPersistentKinds) {
        spec_.placement.home(group, kind) = Tier::kVram;
      }
    }
  }
  uint64_t AllBytes(uint32_t group) const {
    uint64_t bytes = 0;
    for (const ShardKind kind : kPersistentKinds) bytes += GroupBytes(group, kind);
    return bytes;
  }

  // With the chunk's size known: room for two being fetched, one updated and one on its way home,
  // or for as many of these as there is.
  Status GrowOptimizerRing() {
    const uint64_t one = MinimumRings(spec_).optimizer_bytes;
    const uint64_t before = spec_.optimizer_ring_bytes;
    if (one == 0) return Status::Ok();
    for (uint64_t count = 4; count > 0; --count) {
      if (one * count < before || !Take(Tier::kVram, one * count - before)) continue;
      spec_.optimizer_ring_bytes = one * count;
      return Status::Ok();
    }
    return Status::DoesNotFit(fmt::format(
        "--vram {} has no room for the GPU's optimizer, which needs {} for the states of a chunk; "
        "pass --optimizer-device cpu or a larger --vram",
        FormatBytes(limits_.vram_bytes), FormatBytes(one)));
  }

  // Gives homes in `tier` to the kinds in order of value. A kind that does not fit whole is spread
  // evenly over the groups, so that what pages is even too.
  void Fill(Tier tier, std::initializer_list<ShardKind> kinds) {
    for (const ShardKind kind : kinds) {
      if (Fixed(kind)) continue;
      uint64_t wanted = 0;
      for (uint32_t group = 0; group < model_.groups.size(); ++group) {
        if (spec_.placement.home(group, kind) == Tier::kNvme) wanted += GroupBytes(group, kind);
      }
      if (wanted == 0) continue;
      const double share =
          std::min(1.0, static_cast<double>(Free(tier)) / static_cast<double>(wanted));
      double owed = 0;
      for (uint32_t group = 0; group < model_.groups.size(); ++group) {
        const uint64_t bytes = GroupBytes(group, kind);
        if (bytes == 0 || spec_.placement.home(group, kind) != Tier::kNvme) continue;
        owed += share * static_cast<double>(bytes);
        if (owed < 0.999 * static_cast<double>(bytes) || !Take(tier, bytes)) continue;
        owed -= static_cast<double>(bytes);
        spec_.placement.home(group, kind) = tier;
      }
    }
  }

  // With the homes known, rings that hold nothing shrink to nothing.
  void SettleRings() {
    const RingMinimum least = MinimumRings(spec_);
    if (least.weight_bytes == 0) spec_.weight_ring_bytes = 0;
    if (least.optimizer_bytes == 0) spec_.optimizer_ring_bytes = 0;
    if (!AnyStaged()) spec_.staging_ring_bytes = 0;
  }

  bool AnyStaged() const {
    for (uint32_t group = 0; group < model_.groups.size(); ++group) {
      for (const ShardKind kind : kPersistentKinds) {
        if (!HasShard(spec_, group, kind)) continue;
        const Tier home = spec_.placement.home(group, kind);
        if (home == Tier::kNvme) return true;
        if (home == Tier::kVram && !UpdatesOnGpu(spec_, group)) return true;
      }
    }
    return spec_.placement.partial == Tier::kNvme;
  }

  Status CheckNvme() const {
    uint64_t needed = 0;
    for (uint32_t group = 0; group < model_.groups.size(); ++group) {
      for (const ShardKind kind : kPersistentKinds) {
        if (spec_.placement.home(group, kind) != Tier::kNvme) continue;
        needed += GroupBytes(group, kind) * (kind == ShardKind::kGradient ? 1 : limits_.slots);
      }
    }
    if (needed <= limits_.nvme_bytes) return Status::Ok();
    if (limits_.nvme_bytes == 0) {
      return Status::DoesNotFit(fmt::format(
          "the model does not fit: {} of its state find no place in --vram {} and --ram {}; add "
          "--nvme PATH or raise --ram by that much",
          FormatBytes(needed / limits_.slots), FormatBytes(limits_.vram_bytes),
          FormatBytes(limits_.ram_bytes)));
    }
    return Status::DoesNotFit(NvmeShortage(needed, limits_.nvme_bytes));
  }

  const TierLimits& limits_;
  const std::optional<Tier> weight_home_;
  const std::optional<Tier> state_home_;
  PlanSpec& spec_;
  const ModelShape& model_;
  uint64_t vram_used_ = 0;
  uint64_t ram_used_ = 0;
};

}  // namespace

std::string NvmeShortage(uint64_t needed_bytes, uint64_t given_bytes) {
  return fmt::format(
      "--nvme offers {} but the plan needs {}: name a path with more free space, allow it more "
      "(--nvme PATH:SIZE), pass --slots 1 (halves the space, gives up crash resume), or raise "
      "--ram",
      FormatBytes(given_bytes), FormatBytes(needed_bytes));
}

Status FillTiers(const TierLimits& limits, std::optional<Tier> weight_home,
                 std::optional<Tier> state_home, PlanSpec& spec) {
  return Filler(limits, weight_home, state_home, spec).Run();
}

}  // namespace marea
