// What the plan compiler compiles: a model, how a step is cut up, and what lives where. Plain data;
// no torch.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_shape.h"
#include "engine/zero/partition.h"
#include "swap/placement.h"

namespace marea {

struct PlanSpec {
  const ModelShape* model = nullptr;  // outlives the spec; padded for the partition's ranks
  Partition partition;
  Precision precision = Precision::kBf16;
  Precision gradient_precision = Precision::kBf16;  // of the held gradient
  uint32_t micro_count = 1;                         // micro-batches of a step
  uint32_t wave_size = 1;             // micro-batches that go through a block together
  uint64_t chunk_elements = 8 << 20;  // a multiple of kGroupAlignElements
  Placement placement;
  // Ring sizes, in bytes: how far each lane may run ahead.
  uint64_t weight_ring_bytes = 0;       // VRAM: weights on their way through compute
  uint64_t accumulator_ring_bytes = 0;  // VRAM: gradient sums and held gradients on their way out
  uint64_t staging_ring_bytes = 0;      // RAM: chunks between NVMe, the optimizer and VRAM
  uint64_t activation_ring_bytes = 0;   // VRAM: block inputs, where their home is RAM
  uint64_t optimizer_ring_bytes = 0;    // VRAM: states on their way through the GPU's optimizer
  // By group: does the GPU run its optimizer? Empty: the CPU runs all of them.
  std::vector<bool> gpu_update;
  // How many transfers of an NVMe lane may be in flight.
  uint32_t nvme_depth = 8;
};

inline uint32_t WaveCount(const PlanSpec& spec) {
  return (spec.micro_count + spec.wave_size - 1) / spec.wave_size;
}

// Bytes of an element of this kind: 0 where a run of this precision has no such shard.
uint64_t ElementBytes(const PlanSpec& spec, ShardKind kind);

inline bool UpdatesOnGpu(const PlanSpec& spec, uint32_t group) {
  return !spec.gpu_update.empty() && spec.gpu_update[group];
}

// Does this group have such a shard? A frozen group has a weight and nothing else.
bool HasShard(const PlanSpec& spec, uint32_t group, ShardKind kind);

// What this rank owns of such a shard, in elements of the group.
ElementRange OwnedRange(const PlanSpec& spec, uint32_t group, ShardKind kind);
// In bytes; 0 where there is no such shard.
uint64_t OwnedBytes(const PlanSpec& spec, uint32_t group, ShardKind kind);

// Do the group's weights rest in VRAM whole, so that compute uses them where they are?
bool WeightsInPlace(const PlanSpec& spec, uint32_t group);

// The least each ring must hold for any plan of this spec to exist.
struct RingMinimum {
  uint64_t weight_bytes;
  uint64_t accumulator_bytes;
  uint64_t staging_bytes;
  uint64_t activation_bytes;
  uint64_t optimizer_bytes;
};
RingMinimum MinimumRings(const PlanSpec& spec);

}  // namespace marea
