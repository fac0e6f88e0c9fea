// Random models, placements and ways of cutting a step up, for property tests. A seed names a case.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "engine/plan/plan_compiler.h"
#include "engine/plan/plan_spec.h"
#include "io/units.h"

namespace marea {

struct RandomCase {
  ModelShape model;
  PlanSpec spec;  // refers to model: a RandomCase is neither copied nor moved
  explicit RandomCase(uint64_t seed) : random_(seed) {
    MakeModel();
    MakeSpec();
  }
  RandomCase(const RandomCase&) = delete;
  RandomCase& operator=(const RandomCase&) = delete;

 private:
  uint32_t Pick(uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random_);
  }
  bool Coin() { return Pick(0, 1) == 1; }
  Tier AnyTier() { return static_cast<Tier>(Pick(0, 2)); }

  uint32_t AddGroup() {
    GroupShape group;
    group.elements = kGroupAlignElements * Pick(1, 5);
    group.parameters = group.elements - Pick(0, 100);
    group.frozen = Pick(0, 7) == 0;
    model.groups.push_back(group);
    return static_cast<uint32_t>(model.groups.size() - 1);
  }

  void MakeModel() {
    const uint32_t layers = Pick(1, 4);
    const uint64_t activation_bytes = 256 * Pick(1, 20);
    BlockShape embedding{.name = "embed", .kind = BlockKind::kEmbedding, .groups = {AddGroup()}};
    if (Coin()) embedding.groups.push_back(AddGroup());
    embedding.output_bytes = activation_bytes;
    model.blocks.push_back(embedding);
    for (uint32_t layer = 0; layer < layers; ++layer) {
      BlockShape block{
          .name = "layer", .kind = BlockKind::kLayer, .layer = layer, .groups = {AddGroup()}};
      block.input_bytes = block.output_bytes = activation_bytes;
      model.blocks.push_back(block);
    }
    BlockShape head{.name = "head", .kind = BlockKind::kHead, .groups = {AddGroup()}};
    head.groups.push_back(Coin() ? 0 : AddGroup());  // tied, or not
    head.input_bytes = activation_bytes;
    model.blocks.push_back(head);
    for (const GroupShape& group : model.groups) model.parameters += group.parameters;
  }

  // Half of the cases have ranks.
  void MakePartition() {
    if (Coin()) return;
    spec.partition.world_size = Pick(2, 4);
    spec.partition.rank = Pick(0, spec.partition.world_size - 1);
    spec.partition.stage = Pick(0, 3);
    if (Coin()) spec.partition.persistence_threshold = kGroupAlignElements * 3;
    PadGroups(spec.partition.world_size, model);
  }

  void MakeSpec() {
    MakePartition();
    spec.model = &model;
    spec.precision = Coin() ? Precision::kBf16 : Precision::kFp32;
    spec.gradient_precision = Coin() ? Precision::kBf16 : Precision::kFp32;
    spec.micro_count = Pick(1, 5);
    spec.wave_size = Pick(1, spec.micro_count);
    spec.chunk_elements = kGroupAlignElements * Pick(1, 3);
    spec.nvme_depth = Pick(1, 8);
    for (size_t group = 0; group < model.groups.size(); ++group) {
      auto& homes = spec.placement.homes.emplace_back();
      for (Tier& tier : homes) tier = AnyTier();
    }
    spec.placement.partial = AnyTier();
    spec.placement.activation = Coin() ? Tier::kVram : Tier::kRam;
    if (Coin()) {
      for (size_t group = 0; group < model.groups.size(); ++group) {
        spec.gpu_update.push_back(Coin());
      }
    }
    const RingMinimum least = MinimumRings(spec);
    spec.optimizer_ring_bytes = Stretch(least.optimizer_bytes);
    spec.weight_ring_bytes = Stretch(least.weight_bytes);
    spec.accumulator_ring_bytes = Stretch(least.accumulator_bytes);
    spec.staging_ring_bytes = Stretch(least.staging_bytes);
    spec.activation_ring_bytes = Stretch(least.activation_bytes);
  }

  // From the least to three times as much.
  uint64_t Stretch(uint64_t bytes) { return RoundUp(bytes + bytes * Pick(0, 8) / 4, kPageBytes); }

  std::mt19937_64 random_;
};

}  // namespace marea
