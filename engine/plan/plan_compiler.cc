#include "engine/plan/plan_compiler.h"

#include <algorithm>
#include <utility>

#include "engine/plan/ring_assigner.h"
#include "engine/plan/weight_flow.h"
#include "swap/plan_waits.h"

namespace marea {
namespace {

// Which micro-batches a wave holds.
struct Wave {
  uint32_t index;
  uint32_t first, end;  // micro-batches [first, end)
  bool last;
};

// What a block's backward leaves: an fp32 sum for each trainable group, in this batch of the ring.
struct BlockSums {
  uint32_t block;
  uint32_t batch;
  std::vector<Piece> sums;
};

// A group whose gradient is still to be made of its sums.
struct PendingReduce {
  uint32_t group;
  uint32_t block;
  uint32_t batch;
  std::vector<Piece> sums;  // of each use
};

// Note [Collectives beside compute]
// The comm lane runs its ops in order, and so does compute. Where the rings have room for two
// blocks, the program is written so that neither waits for the other: a block's backward finds its
// weights gathered before the collectives of the block above it, whose sums are reduced after it:
//
//   compute   backward(b)                 backward(b-1)   reduce(b)         backward(b-2)
//   comm                    gather(b-1)   scatter(b)      gather(b-2)       scatter(b-1)
//
// (a gather starts as soon as there is a slot for it). In forward the next block's weights come
// before a block computes: those that the GPU updates are updated in time for their gather. With
// less room each block is settled before the next one begins.
enum class Overlap : uint8_t { kNone, kNextBlock };

class Compiler : WeightFlow {
 public:
  Compiler(const PlanSpec& spec, Overlap overlap) : WeightFlow(spec), overlap_(overlap) {}

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
  // ---- Waves ------------------------------------------------------------------------------------

  void EmitWave(const Wave& wave) {
    const uint32_t last = static_cast<uint32_t>(model_.blocks.size()) - 1;
    const bool ahead = overlap_ == Overlap::kNextBlock;
    std::vector<Piece> inputs;
    std::vector<Piece> weights = ForwardWeights(wave, 0);
    for (uint32_t block = 0; block < last; ++block) {
      std::vector<Piece> next;
      if (ahead) next = ForwardWeights(wave, block + 1);
      EmitForward(wave, block, weights, inputs);
      weights = ahead ? std::move(next) : ForwardWeights(wave, block + 1);
    }
    BlockSums above = EmitHead(wave, last, weights, inputs);
    for (uint32_t block = last; block-- > 0;) {
      weights.clear();
      if (ahead && block > 0) weights = WeightsOf(wave, block, When::kIfTrain, false);
      Settle(wave, above);
      // The sums of a larger block would not find room beside these.
      if (!ahead || ElementsOf(block) > ElementsOf(block + 1)) EmitReduces();
      if (!ahead && block > 0) weights = WeightsOf(wave, block, When::kIfTrain, false);
      above = EmitBackward(wave, block, weights);
      EmitReduces();
    }
    Settle(wave, above);
    EmitReduces();
  }

  uint64_t ElementsOf(uint32_t block) const {
    uint64_t elements = 0;
    for (const uint32_t group : model_.blocks[block].groups) elements += Elements(group);
    return elements;
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

  // For the first use in a wave; the step's first wave updates them on the way.
  std::vector<Piece> ForwardWeights(const Wave& wave, uint32_t block) {
    return WeightsOf(wave, block, When::kIfForward, wave.index == 0);
  }

  void EmitForward(const Wave& wave, uint32_t block, const std::vector<Piece>& weights,
                   std::vector<Piece>& inputs) {
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

  BlockSums EmitHead(const Wave& wave, uint32_t block, const std::vector<Piece>& weights,
                     const std::vector<Piece>& inputs) {
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
    return {block, batch, sums};
  }

  BlockSums EmitBackward(const Wave& wave, uint32_t block, const std::vector<Piece>& weights) {
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
    return {block, batch, sums};
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

  // After a block's backward: a group whose sums are complete is to be reduced, which EmitReduces
  // does; any other sum waits for the next wave or for the group's other uses.
  void Settle(const Wave& wave, const BlockSums& above) {
    const Op context = Context(When::kIfTrain, above.block, kNone);
    size_t next = 0;
    for (const uint32_t group : model_.blocks[above.block].groups) {
      if (model_.groups[group].frozen) continue;
      const Piece& sum = above.sums[next++];
      const uint32_t use = use_.at({above.block, group});
      // Backward visits a group's first use last.
      if (wave.last && use == 0) {
        reduces_.push_back(SumOverRanks(group, above, sum));
      } else {
        SendHome(sum, PartialHome(group, use), 4, group, OwnChunks(group, ShardKind::kPartial),
                 context);
      }
    }
  }

  // The sums of every use of the group, each of which holds the ranks' sum of this rank's part.
  PendingReduce SumOverRanks(uint32_t group, const BlockSums& block, const Piece& first_sum) {
    const Op context = Context(When::kIfTrain, block.block, kNone);
    PendingReduce reduce{group, block.block, block.batch, {first_sum}};
    for (uint32_t use = 1; use < use_count_[group]; ++use) {
      reduce.sums.push_back(FetchSum(group, use, context, block.batch));
    }
    if (spec_.partition.world_size > 1) {
      for (const Piece& sum : reduce.sums) EmitReduceScatter(group, sum, context);
    }
    return reduce;
  }

  void EmitReduces() {
    for (const PendingReduce& reduce : reduces_) EmitReduce(reduce);
    reduces_.clear();
  }

  // Where ranks share the work, each adds and rounds its own part of the sums; where all of them
  // hold the whole gradient it is gathered afterwards. The gradient is sent home.
  void EmitReduce(const PendingReduce& pending) {
    const uint32_t group = pending.group;
    const Op context = Context(When::kIfTrain, pending.block, kNone);
    const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kGradient);
    const uint32_t home = homes_.at({group, ShardKind::kGradient});
    const ElementRange part = PartOf(spec_.partition, model_.groups[group], spec_.partition.rank);
    const uint32_t held =
        spec_.placement.home(group, ShardKind::kGradient) == Tier::kVram
            ? home
            : builder_.Value(accumulator_ring_, OwnedBytes(spec_, group, ShardKind::kGradient),
                             OwnedContent(group, ShardKind::kGradient), pending.batch);
    Op reduce = context;
    reduce.kind = OpKind::kReduce;
    reduce.group = group;
    reduce.accesses = {WriteOf(RangeOf(held, part, element_bytes)),
                       WriteOf(builder_.Whole(norms_.at(group)))};
    for (const Piece& sum : pending.sums) {
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

  const Overlap overlap_;
  std::vector<PendingReduce> reduces_;
};

}  // namespace

Result<StepPlan> CompileStepPlan(const PlanSpec& spec) {
  if (spec.partition.world_size > 1) {
    Result<StepPlan> overlapped = Compiler(spec, Overlap::kNextBlock).Run();
    if (overlapped.status().code() != ErrorCode::kDoesNotFit) return overlapped;
  }
  return Compiler(spec, Overlap::kNone).Run();
}

}  // namespace marea
