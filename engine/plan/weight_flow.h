// The weights' way to compute: from their homes into a slot in VRAM, updated and gathered as they
// pass.
//
// The middle of the plan compiler: it says how a group's weights come for one use; plan_compiler.cc
// says when. Used by it alone, as its base. Not thread-safe.
#pragma once

#include <utility>
#include <vector>

#include "engine/plan/shard_flow.h"

namespace marea {

class WeightFlow : protected ShardFlow {
 protected:
  explicit WeightFlow(const PlanSpec& spec) : ShardFlow(spec) {}

  // The group's weights in VRAM for one use, updated on the way if this is the turn's first. Where
  // ranks own parts, each brings its own and the others' are gathered beside it.
  uint32_t WeightsFor(uint32_t group, Op context, bool update, uint32_t batch);
  // Every rank's part of the shard, side by side in `whole`. `own` holds this rank's.
  void EmitGather(uint32_t group, ShardKind kind, uint32_t own, uint32_t whole, Op context);

 private:
  // These chunks in their places in the slot, from their homes. Weights that rest in VRAM, whole or
  // in part, are not copied there.
  void BringWeights(uint32_t group, const std::vector<Chunk>& chunks, uint32_t slot, bool changes,
                    Op context);
  // Replicated weights whose update is partitioned: what the other ranks updated comes by gather
  // and goes home; in a turn without an update it is at home already.
  void RefreshOthers(uint32_t group, uint32_t home, uint32_t slot, Op context);
  // Brings every kind of the chunk to where `fetch` puts it and runs the optimizer there, in
  // `lane`. Returns what changed: its home, and where its new bytes are; the weight comes first.
  template <typename Fetch>
  std::vector<std::pair<Piece, Piece>> EmitOptimizer(uint32_t group, const Chunk& chunk, Op context,
                                                     Lane lane, Fetch fetch);
  // On the CPU, in RAM. Returns where the new weights are there.
  Piece EmitUpdate(uint32_t group, const Chunk& chunk, Op context);
  // On the GPU: `weight` is where forward finds the weights, and there they are updated.
  void EmitGpuUpdate(uint32_t group, const Chunk& chunk, Op context, const Piece& weight);
};

}  // namespace marea
