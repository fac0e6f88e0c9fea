#include "engine/plan/plan_compiler.h"

#include <algorithm>
#include <optional>

#include "engine/plan/ring_assigner.h"
#include "engine/plan/shard_flow.h"
#include "swap/plan_waits.h"

namespace marea {
namespace {

// Which micro-batches a wave holds.
struct Wave {
  uint32_t index;
  uint32_t first, end;  // micro-batches [first, end)
  bool last;
};

class Compiler : ShardFlow {
 public:
  explicit Compiler(const PlanSpec& spec) : ShardFlow(spec) {}

  Result<StepPlan> Run() {
    const uint32_t wave_count = WaveCount(spec_);
    for (uint32_t w = 0; w < wave_count; ++w) {
      const uint32_t first = w * spec_.wave_size;
      EmitWave(
          {w, first, std::min(spec_.micro_count, first + spec_.wave_size), w + 1 == wave_count});
    }
    EmitClip();
    builder_.PlaceRings();
    StepPlan& plan = builder_.plan();
    plan.lane_depth.fill(1);
    plan.lane_depth[static_cast<int>(Lane::kNvmeRead)] = spec_.nvme_depth;
    plan.lane_depth[static_cast<int>(Lane::kNvmeWrite)] = spec_.nvme_depth;
    MAREA_RETURN_IF_ERROR(AssignRings(plan, builder_.batches()));
    MAREA_RETURN_IF_ERROR(DeriveWaits(plan));
    return std::move(plan);
  }

 private:
  // ---- Weights ----------------------------------------------------------------------------------

  // The group's weights in VRAM for one use, updated on the way if this is the turn's first. Where
  // ranks own parts, each brings its own and the others' are gathered beside it.
  uint32_t WeightsFor(uint32_t group, Op context, bool update, uint32_t batch) {
    const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kWeight);
    const uint32_t home = homes_.at({group, ShardKind::kWeight});
    const uint32_t slot = WeightsInPlace(spec_, group)
                              ? home
                              : builder_.Value(weight_ring_, Elements(group) * element_bytes,
                                               {ShardKind::kWeight, group}, batch);
    context.group = group;
    const bool changes = update && !model_.groups[group].frozen;
    if (Partitioned(group, ShardKind::kWeight)) {
      BringWeights(group, OwnChunks(group, ShardKind::kWeight), slot, changes, context);
      const bool in_vram = builder_.buffer(home).space == Space::kVram;
      EmitGather(group, ShardKind::kWeight, in_vram ? home : slot, slot, context);
    } else if (changes && Partitioned(group, ShardKind::kMoment1)) {
      Op own = context;  // the replicas follow an update in a turn without a forward too
      own.when = When::kAlways;
      BringWeights(group, ChunksOfPart(group, spec_.partition.rank), slot, changes, own);
      RefreshOthers(group, home, slot, context);
    } else {
      BringWeights(group, OwnChunks(group, ShardKind::kWeight), slot, changes, context);
    }
    return slot;
  }

  // These chunks in their places in the slot, from their homes. Weights that rest in VRAM, whole or
  // in part, are not copied there.
  void BringWeights(uint32_t group, const std::vector<Chunk>& chunks, uint32_t slot, bool changes,
                    Op context) {
    const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kWeight);
    const bool in_vram = spec_.placement.home(group, ShardKind::kWeight) == Tier::kVram;
    for (const Chunk& chunk : chunks) {
      context.chunk = chunk.index;
      const Piece home = HomeChunk(group, ShardKind::kWeight, chunk);
      const Piece target = in_vram ? home : RangeOf(slot, chunk.elements, element_bytes);
      if (changes && UpdatesOnGpu(spec_, group)) {
        EmitGpuUpdate(group, chunk, context, target);
        continue;
      }
      std::optional<Piece> updated;
      if (changes) updated = EmitUpdate(group, chunk, context);
      if (in_vram) continue;
      const Piece source = updated ? *updated : FetchToRam(home, context, builder_.NewBatch());
      builder_.EmitTransfer(OpKind::kCopyIn, context, source, target);
    }
  }

  // Replicated weights whose update is partitioned: what the other ranks updated comes by gather
  // and goes home; in a turn without an update it is at home already.
  void RefreshOthers(uint32_t group, uint32_t home, uint32_t slot, Op context) {
    const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kWeight);
    const std::vector<Chunk> others = OtherChunks(group);
    if (slot != home) {
      context.when = When::kIfNoUpdate;
      for (const Chunk& chunk : others) {
        context.chunk = chunk.index;
        FetchToVram(RangeOf(home, chunk.elements, element_bytes),
                    RangeOf(slot, chunk.elements, element_bytes), context);
      }
    }
    context.when = When::kIfUpdate;
    EmitGather(group, ShardKind::kWeight, slot, slot, context);
    SendHome(builder_.Whole(slot), home, element_bytes, group, others, context);
  }

  // Every rank's part of the shard, side by side in `whole`. `own` holds this rank's.
  void EmitGather(uint32_t group, ShardKind kind, uint32_t own, uint32_t whole, Op context) {
    const ElementRange part = PartOf(spec_.partition, model_.groups[group], spec_.partition.rank);
    context.kind = OpKind::kGather;
    context.lane = Lane::kComm;
    context.group = group;
    context.chunk = 0;
    context.accesses = {ReadOf(RangeOf(own, part, ElementBytes(spec_, kind))),
                        WriteOf(builder_.Whole(whole))};
    builder_.Emit(std::move(context));
  }

  // Brings every kind of the chunk to where `fetch` puts it and runs the optimizer there, in
  // `lane`. Returns what changed: its home, and where its new bytes are; the weight comes first.
  template <typename Fetch>
  std::vector<std::pair<Piece, Piece>> EmitOptimizer(uint32_t group, const Chunk& chunk, Op context,
                                                     Lane lane, Fetch fetch) {
    const bool resident = spec_.placement.home(group, ShardKind::kWeight) == Tier::kVram;
    Op update = context;
    update.kind = OpKind::kUpdate;
    update.lane = lane;
    update.when = When::kIfUpdate;
    std::vector<std::pair<Piece, Piece>> changed;
    for (const ShardKind kind : kPersistentKinds) {
      if (!HasShard(spec_, group, kind)) continue;
      // The weights go on to VRAM in turns without an update too, unless they rest there.
      context.when = kind == ShardKind::kWeight && !resident ? When::kAlways : When::kIfUpdate;
      const Piece home = HomeChunk(group, kind, chunk);
      const Piece value = fetch(kind, home, context);
      if (kind == ShardKind::kGradient) {
        update.accesses.push_back(ReadOf(value));
      } else {
        update.accesses.push_back(ReadWriteOf(value));
        changed.emplace_back(home, value);
      }
    }
    update.accesses.push_back(ReadOf(builder_.Whole(coefficient_)));
    builder_.Emit(std::move(update));
    return changed;
  }

  // On the CPU, in RAM. Returns where the new weights are there.
  Piece EmitUpdate(uint32_t group, const Chunk& chunk, Op context) {
    const uint32_t batch = builder_.NewBatch();
    const auto changed = EmitOptimizer(group, chunk, context, Lane::kCpu,
                                       [&](ShardKind, const Piece& home, const Op& fetching) {
                                         return FetchToRam(home, fetching, batch);
                                       });
    context.when = When::kIfUpdate;
    for (const auto& [home, staged] : changed) ReturnFromRam(home, staged, context);
    return changed.front().second;
  }

  // On the GPU: `weight` is where forward finds the weights, and there they are updated.
  void EmitGpuUpdate(uint32_t group, const Chunk& chunk, Op context, const Piece& weight) {
    const uint32_t batch = builder_.NewBatch();
    const auto in_place = [&](const Piece& home) {
      return builder_.buffer(home.buffer).space == Space::kVram;
    };
    const auto changed = EmitOptimizer(
        group, chunk, context, Lane::kCompute,
        [&](ShardKind kind, const Piece& home, const Op& fetching) {
          if (in_place(home)) return home;
          const Piece value =
              kind == ShardKind::kWeight ? weight : ValueFor(optimizer_ring_, home, batch);
          FetchToVram(home, value, fetching);
          return value;
        });
    context.when = When::kIfUpdate;
    for (const auto& [home, value] : changed) {
      if (!in_place(home)) ReturnFromVram(home, value, context);
    }
  }

  // ---- Waves ------------------------------------------------------------------------------------

  void EmitWave(const Wave& wave) {
    const uint32_t last = static_cast<uint32_t>(model_.blocks.size()) - 1;
    std::vector<Piece> inputs;
    for (uint32_t block = 0; block < last; ++block) EmitForward(wave, block, inputs);
    EmitHead(wave, last, inputs);
    for (uint32_t block = last; block-- > 0;) EmitBackward(wave, block);
  }

  // Weights of every group of the block, brought in for this wave.
  std::vector<Piece> WeightsOf(const Wave& wave, uint32_t block, When when, bool update) {
    // Only the first wave always runs: a step may have fewer micro-batches.
    Op context = Context(when, block, wave.index == 0 ? kNone : wave.first);
    const uint32_t batch = builder_.NewBatch();
    std::vector<Piece> weights;
    for (const uint32_t group : model_.blocks[block].groups) {
      const bool first_use = use_.at({block, group}) == 0;
      weights.push_back(builder_.Whole(WeightsFor(group, context, update && first_use, batch)));
    }
    return weights;
  }

  void EmitForward(const Wave& wave, uint32_t block, std::vector<Piece>& inputs) {
    const std::vector<Piece> weights = WeightsOf(wave, block, When::kIfForward, wave.index == 0);
    const uint32_t batch = builder_.NewBatch();
    std::vector<Piece> outputs;
    for (uint32_t micro = wave.first; micro < wave.end; ++micro) {
      const uint32_t i = micro - wave.first;
      Op op = Context(When::kIfForward, block, micro);
      outputs.push_back(NewActivation(block + 1, i, batch));
      op.accesses.push_back(WriteOf(outputs.back()));
      if (block > 0) op.accesses.push_back(ReadOf(inputs[i]));
      for (const Piece& weight : weights) op.accesses.push_back(ReadOf(weight));
      builder_.Emit(std::move(op));
      KeepActivation(block + 1, i, micro, outputs.back());
    }
    inputs = std::move(outputs);
  }

  // Sends a fresh activation to its home in RAM. The last block uses its input at once.
  void KeepActivation(uint32_t block, uint32_t i, uint32_t micro, const Piece& value) {
    const bool spills = spec_.placement.activation == Tier::kRam;
    if (!spills || block + 1 == model_.blocks.size()) return;
    builder_.EmitTransfer(OpKind::kCopyOut, Context(When::kIfTrain, block, micro), value,
                          builder_.Whole(activation_homes_.at({block, i})));
  }

  void EmitHead(const Wave& wave, uint32_t block, const std::vector<Piece>& inputs) {
    const std::vector<Piece> weights = WeightsOf(wave, block, When::kIfForward, wave.index == 0);
    const uint32_t batch = builder_.NewBatch();  // all that backward of this block holds at once
    const std::vector<Piece> sums = AccumulatorsOf(wave, block, batch);
    for (uint32_t micro = wave.first; micro < wave.end; ++micro) {
      const uint32_t i = micro - wave.first;
      Op train = Context(When::kIfTrain, block, micro);
      train.kind = OpKind::kForwardBackward;
      Op evaluate = Context(When::kIfEval, block, micro);
      evaluate.kind = OpKind::kHeadEval;
      const Access loss = WriteOf(builder_.Whole(losses_[micro]));
      train.accesses = {loss, WriteOf(builder_.Whole(gradients_[i])), ReadOf(inputs[i])};
      evaluate.accesses = {loss, ReadOf(inputs[i])};
      for (const Piece& weight : weights) {
        train.accesses.push_back(ReadOf(weight));
        evaluate.accesses.push_back(ReadOf(weight));
      }
      AddSums(train, sums, micro);
      builder_.Emit(std::move(train));
      builder_.Emit(std::move(evaluate));
    }
    Settle(wave, block, sums, batch);
  }

  void EmitBackward(const Wave& wave, uint32_t block) {
    std::vector<Piece> weights;
    if (block > 0) weights = WeightsOf(wave, block, When::kIfTrain, false);
    const uint32_t batch = builder_.NewBatch();  // all that backward of this block holds at once
    const std::vector<Piece> sums = AccumulatorsOf(wave, block, batch);
    for (uint32_t micro = wave.first; micro < wave.end; ++micro) {
      const uint32_t i = micro - wave.first;
      Op op = Context(When::kIfTrain, block, micro);
      op.kind = OpKind::kBackward;
      const Piece gradient = builder_.Whole(gradients_[i]);
      op.accesses.push_back(block > 0 ? ReadWriteOf(gradient) : ReadOf(gradient));
      if (block > 0) op.accesses.push_back(ReadOf(KeptActivation(block, i, op)));
      for (const Piece& weight : weights) op.accesses.push_back(ReadOf(weight));
      AddSums(op, sums, micro);
      builder_.Emit(std::move(op));
    }
    Settle(wave, block, sums, batch);
  }

  // ---- Gradients --------------------------------------------------------------------------------

  static void AddSums(Op& op, const std::vector<Piece>& sums, uint32_t micro) {
    for (const Piece& sum : sums) {
      op.accesses.push_back(micro == 0 ? WriteOf(sum) : ReadWriteOf(sum));
    }
  }

  // An fp32 sum for each trainable group of the block, with what earlier waves left.
  std::vector<Piece> AccumulatorsOf(const Wave& wave, uint32_t block, uint32_t batch) {
    const Op context = Context(When::kIfTrain, block, kNone);
    std::vector<Piece> sums;
    for (const uint32_t group : model_.blocks[block].groups) {
      if (model_.groups[group].frozen) continue;
      const uint32_t use = use_.at({block, group});
      sums.push_back(wave.index == 0 ? NewSum(group, use, batch)
                                     : FetchSum(group, use, context, batch));
    }
    return sums;
  }

  // After a block's backward: a group whose sums are complete is reduced and its gradient sent
  // home; any other sum waits for the next wave or for the group's other uses.
  void Settle(const Wave& wave, uint32_t block, const std::vector<Piece>& sums, uint32_t batch) {
    size_t next = 0;
    for (const uint32_t group : model_.blocks[block].groups) {
      if (model_.groups[group].frozen) continue;
      const Piece& sum = sums[next++];
      const uint32_t use = use_.at({block, group});
      // Backward visits a group's first use last.
      if (wave.last && use == 0) {
        EmitReduce(group, block, sum, batch);
      } else {
        SendHome(sum, PartialHome(group, use), 4, group, OwnChunks(group, ShardKind::kPartial),
                 Context(When::kIfTrain, block, kNone));
      }
    }
  }

  // Where ranks share the work, each adds and rounds its own part of the sums; where all of them
  // hold the whole gradient it is gathered afterwards.
  void EmitReduce(uint32_t group, uint32_t block, const Piece& first_sum, uint32_t batch) {
    const Op context = Context(When::kIfTrain, block, kNone);
    const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kGradient);
    const uint32_t home = homes_.at({group, ShardKind::kGradient});
    const ElementRange part = PartOf(spec_.partition, model_.groups[group], spec_.partition.rank);
    std::vector<Piece> sums{first_sum};
    for (uint32_t use = 1; use < use_count_[group]; ++use) {
      sums.push_back(FetchSum(group, use, context, batch));
    }
    const uint32_t held =
        spec_.placement.home(group, ShardKind::kGradient) == Tier::kVram
            ? home
            : builder_.Value(accumulator_ring_, OwnedBytes(spec_, group, ShardKind::kGradient),
                             OwnedContent(group, ShardKind::kGradient), batch);
    Op reduce = context;
    reduce.kind = OpKind::kReduce;
    reduce.group = group;
    reduce.accesses = {WriteOf(RangeOf(held, part, element_bytes)),
                       WriteOf(builder_.Whole(norms_.at(group)))};
    for (const Piece& sum : sums) {
      if (spec_.partition.world_size > 1) EmitReduceScatter(group, sum, context);
      reduce.accesses.push_back(ReadOf(RangeOf(sum.buffer, part, 4)));
    }
    builder_.Emit(std::move(reduce));
    if (spec_.partition.world_size > 1 && !Partitioned(group, ShardKind::kGradient)) {
      EmitGather(group, ShardKind::kGradient, held, held, context);
    }
    SendHome(builder_.Whole(held), home, element_bytes, group,
             OwnChunks(group, ShardKind::kGradient), context);
  }

  void EmitReduceScatter(uint32_t group, const Piece& sum, Op context) {
    context.kind = OpKind::kReduceScatter;
    context.lane = Lane::kComm;
    context.group = group;
    context.accesses = {ReadWriteOf(sum)};
    builder_.Emit(std::move(context));
  }

  void EmitClip() {
    Op clip{.kind = OpKind::kClip, .lane = Lane::kCpu, .when = When::kIfForward};
    clip.accesses.push_back(WriteOf(builder_.Whole(coefficient_)));
    for (const uint32_t loss : losses_) clip.accesses.push_back(ReadOf(builder_.Whole(loss)));
    for (const auto& [group, norm] : norms_) {
      clip.accesses.push_back(ReadOf(builder_.Whole(norm)));
    }
    builder_.Emit(std::move(clip));
  }
};

}  // namespace

Result<StepPlan> CompileStepPlan(const PlanSpec& spec) {
  return Compiler(spec).Run();
}

}  // namespace marea
