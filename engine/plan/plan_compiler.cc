#include "engine/plan/plan_compiler.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/plan/plan_builder.h"
#include "engine/plan/ring_assigner.h"
#include "swap/plan_waits.h"

namespace marea {
namespace {

// Which micro-batches a wave holds.
struct Wave {
  uint32_t index;
  uint32_t first, end;  // micro-batches [first, end)
  bool last;
};

class Compiler {
 public:
  explicit Compiler(const PlanSpec& spec) : spec_(spec), model_(*spec.model) {}

  Result<StepPlan> Run() {
    MakeHomes();
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
  // ---- Homes and shapes -------------------------------------------------------------------------

  void MakeHomes() {
    weight_ring_ = builder_.AddRing("weights", Space::kVram, spec_.weight_ring_bytes);
    accumulator_ring_ =
        builder_.AddRing("accumulators", Space::kVram, spec_.accumulator_ring_bytes);
    activation_ring_ = builder_.AddRing("activations", Space::kVram, spec_.activation_ring_bytes);
    staging_ring_ = builder_.AddRing("staging", Space::kRam, spec_.staging_ring_bytes);
    for (uint32_t group = 0; group < model_.groups.size(); ++group) {
      for (const ShardKind kind : kPersistentKinds) {
        if (!HasShard(spec_, group, kind)) continue;
        homes_[{group, kind}] =
            builder_.Home(SpaceOf(spec_.placement.home(group, kind)),
                          Elements(group) * ElementBytes(spec_, kind), {kind, group});
      }
      if (!model_.groups[group].frozen) {
        norms_[group] = Scalar(ScalarName::kNorm, group, 0);
      }
    }
    coefficient_ = Scalar(ScalarName::kCoefficient, kNone, 0);
    for (uint32_t micro = 0; micro < spec_.micro_count; ++micro) {
      losses_.push_back(Scalar(ScalarName::kLoss, kNone, micro));
    }
    const Space kept = SpaceOf(spec_.placement.activation);
    for (uint32_t block = 1; block < model_.blocks.size(); ++block) {
      const bool last = block + 1 == model_.blocks.size();
      for (uint32_t i = 0; i < spec_.wave_size; ++i) {
        if (kept == Space::kVram || !last) {
          activation_homes_[{block, i}] = builder_.Home(kept, model_.blocks[block].input_bytes,
                                                        {ShardKind::kActivation, kNone, block, i});
        }
      }
    }
    for (uint32_t i = 0; i < spec_.wave_size; ++i) {
      gradients_.push_back(builder_.Home(Space::kVram, model_.blocks[1].input_bytes,
                                         {ShardKind::kActivation, kNone, kOutputGradient, i}));
    }
    std::vector<uint32_t> uses(model_.groups.size(), 0);
    for (uint32_t block = 0; block < model_.blocks.size(); ++block) {
      for (const uint32_t group : model_.blocks[block].groups) use_[{block, group}] = uses[group]++;
    }
    use_count_ = std::move(uses);
  }

  uint32_t Scalar(ScalarName name, uint32_t group, uint32_t micro) {
    return builder_.Home(Space::kScalar, sizeof(double),
                         {ShardKind::kScalar, group, static_cast<uint32_t>(name), micro});
  }

  uint64_t Elements(uint32_t group) const { return model_.groups[group].elements; }
  uint32_t Chunks(uint32_t group) const {
    return static_cast<uint32_t>(DivideRoundUp(Elements(group), spec_.chunk_elements));
  }
  uint64_t ChunkElements(uint32_t group, uint32_t chunk) const {
    return std::min(spec_.chunk_elements, Elements(group) - chunk * spec_.chunk_elements);
  }
  // A chunk's stretch of a buffer that holds the whole group.
  Piece ChunkOf(uint32_t buffer, uint32_t group, uint32_t chunk, uint64_t element_bytes) const {
    return {buffer, chunk * spec_.chunk_elements * element_bytes,
            ChunkElements(group, chunk) * element_bytes};
  }

  // ---- Chunks of a shard on their way to the CPU and back ---------------------------------------

  Piece HomeChunk(uint32_t group, ShardKind kind, uint32_t chunk) {
    return ChunkOf(homes_.at({group, kind}), group, chunk, ElementBytes(spec_, kind));
  }

  Piece StagingFor(const Piece& home, uint32_t batch) {
    Content content = builder_.buffer(home.buffer).content;
    content.first_byte += home.offset;
    return builder_.Whole(builder_.Value(staging_ring_, home.bytes, content, batch));
  }

  // The chunk as bytes that the CPU can reach: in place where its home is RAM, else staged.
  Piece FetchToRam(const Piece& home, const Op& context, uint32_t batch) {
    const Space space = builder_.buffer(home.buffer).space;
    if (space == Space::kRam) return home;
    const Piece staged = StagingFor(home, batch);
    builder_.EmitTransfer(space == Space::kFile ? OpKind::kRead : OpKind::kCopyOut, context, home,
                          staged);
    return staged;
  }

  // The way back from RAM; nothing to do where the bytes are at home already.
  void ReturnFromRam(const Piece& home, const Piece& staged, const Op& context) {
    const Space space = builder_.buffer(home.buffer).space;
    if (space == Space::kRam) return;
    builder_.EmitTransfer(space == Space::kFile ? OpKind::kWrite : OpKind::kCopyIn, context, staged,
                          home);
  }

  // ---- Weights ----------------------------------------------------------------------------------

  // The group's weights in VRAM for one use, updated on the way if this is the turn's first.
  uint32_t WeightsFor(uint32_t group, Op context, bool update, uint32_t batch) {
    const bool resident = spec_.placement.home(group, ShardKind::kWeight) == Tier::kVram;
    const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kWeight);
    const uint32_t slot = resident ? homes_.at({group, ShardKind::kWeight})
                                   : builder_.Value(weight_ring_, Elements(group) * element_bytes,
                                                    {ShardKind::kWeight, group}, batch);
    context.group = group;
    for (uint32_t chunk = 0; chunk < Chunks(group); ++chunk) {
      context.chunk = chunk;
      std::optional<Piece> updated;
      if (update && !model_.groups[group].frozen) updated = EmitUpdate(group, chunk, context);
      if (resident) continue;
      const Piece source = updated ? *updated
                                   : FetchToRam(HomeChunk(group, ShardKind::kWeight, chunk),
                                                context, builder_.NewBatch());
      builder_.EmitTransfer(OpKind::kCopyIn, context, source,
                            ChunkOf(slot, group, chunk, element_bytes));
    }
    return slot;
  }

  // Fetches every kind of the chunk, runs the optimizer and sends home what changed. Returns where
  // the new weights are in RAM.
  Piece EmitUpdate(uint32_t group, uint32_t chunk, Op context) {
    const bool resident = spec_.placement.home(group, ShardKind::kWeight) == Tier::kVram;
    Op update = context;
    update.kind = OpKind::kUpdate;
    update.lane = Lane::kCpu;
    update.when = When::kIfUpdate;
    const uint32_t batch = builder_.NewBatch();
    std::vector<std::pair<Piece, Piece>> changed;
    for (const ShardKind kind : kPersistentKinds) {
      if (!HasShard(spec_, group, kind)) continue;
      // The weights go on to VRAM in turns without an update too, unless they rest there.
      context.when = kind == ShardKind::kWeight && !resident ? When::kAlways : When::kIfUpdate;
      const Piece home = HomeChunk(group, kind, chunk);
      const Piece staged = FetchToRam(home, context, batch);
      if (kind == ShardKind::kGradient) {
        update.accesses.push_back(ReadOf(staged));
      } else {
        update.accesses.push_back(ReadWriteOf(staged));
        changed.emplace_back(home, staged);
      }
    }
    update.accesses.push_back(ReadOf(builder_.Whole(coefficient_)));
    builder_.Emit(std::move(update));
    context.when = When::kIfUpdate;
    for (const auto& [home, staged] : changed) ReturnFromRam(home, staged, context);
    return changed.front().second;
  }

  // ---- Activations ------------------------------------------------------------------------------

  // Where the input of `block` is written, for the i-th micro-batch of a wave.
  Piece NewActivation(uint32_t block, uint32_t i, uint32_t batch) {
    if (spec_.placement.activation == Tier::kVram) {
      return builder_.Whole(activation_homes_.at({block, i}));
    }
    return builder_.Whole(builder_.Value(activation_ring_, model_.blocks[block].input_bytes,
                                         {ShardKind::kActivation, kNone, block, i}, batch));
  }

  // The kept input, back in VRAM for the recompute.
  Piece KeptActivation(uint32_t block, uint32_t i, const Op& context) {
    const Piece home = builder_.Whole(activation_homes_.at({block, i}));
    if (spec_.placement.activation == Tier::kVram) return home;
    const Piece value = NewActivation(block, i, builder_.NewBatch());
    builder_.EmitTransfer(OpKind::kCopyIn, context, home, value);
    return value;
  }

  // ---- Waves ------------------------------------------------------------------------------------

  void EmitWave(const Wave& wave) {
    const uint32_t last = static_cast<uint32_t>(model_.blocks.size()) - 1;
    std::vector<Piece> inputs;
    for (uint32_t block = 0; block < last; ++block) EmitForward(wave, block, inputs);
    EmitHead(wave, last, inputs);
    for (uint32_t block = last; block-- > 0;) EmitBackward(wave, block);
  }

  Op Context(When when, uint32_t block, uint32_t micro) const {
    return Op{.kind = OpKind::kForward,
              .lane = Lane::kCompute,
              .when = when,
              .block = block,
              .micro = micro};
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

  uint32_t PartialHome(uint32_t group, uint32_t use) {
    const auto [it, made] = partials_.try_emplace({group, use}, 0);
    if (made) {
      it->second = builder_.Home(SpaceOf(spec_.placement.partial), Elements(group) * 4,
                                 {ShardKind::kPartial, group, use});
    }
    return it->second;
  }

  Piece NewSum(uint32_t group, uint32_t use, uint32_t batch) {
    if (spec_.placement.partial == Tier::kVram) return builder_.Whole(PartialHome(group, use));
    return builder_.Whole(builder_.Value(accumulator_ring_, Elements(group) * 4,
                                         {ShardKind::kPartial, group, use}, batch));
  }

  Piece FetchSum(uint32_t group, uint32_t use, Op context, uint32_t batch) {
    const Piece sum = NewSum(group, use, batch);
    if (spec_.placement.partial == Tier::kVram) return sum;
    context.group = group;
    for (uint32_t chunk = 0; chunk < Chunks(group); ++chunk) {
      context.chunk = chunk;
      const Piece staged = FetchToRam(ChunkOf(PartialHome(group, use), group, chunk, 4), context,
                                      builder_.NewBatch());
      builder_.EmitTransfer(OpKind::kCopyIn, context, staged, ChunkOf(sum.buffer, group, chunk, 4));
    }
    return sum;
  }

  // Sends a whole group's bytes in VRAM to a home elsewhere, chunk by chunk.
  void SendHome(const Piece& value, uint32_t home, uint64_t element_bytes, uint32_t group,
                Op context) {
    const Space space = builder_.buffer(home).space;
    if (value.buffer == home) return;
    context.group = group;
    for (uint32_t chunk = 0; chunk < Chunks(group); ++chunk) {
      context.chunk = chunk;
      const Piece from = ChunkOf(value.buffer, group, chunk, element_bytes);
      const Piece to = ChunkOf(home, group, chunk, element_bytes);
      const Piece in_ram = space == Space::kRam ? to : StagingFor(to, builder_.NewBatch());
      builder_.EmitTransfer(OpKind::kCopyOut, context, from, in_ram);
      if (space == Space::kFile) builder_.EmitTransfer(OpKind::kWrite, context, in_ram, to);
    }
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
        SendHome(sum, PartialHome(group, use), 4, group, Context(When::kIfTrain, block, kNone));
      }
    }
  }

  void EmitReduce(uint32_t group, uint32_t block, const Piece& first_sum, uint32_t batch) {
    const Op context = Context(When::kIfTrain, block, kNone);
    const uint64_t element_bytes = ElementBytes(spec_, ShardKind::kGradient);
    const uint32_t home = homes_.at({group, ShardKind::kGradient});
    std::vector<Piece> sums{first_sum};
    for (uint32_t use = 1; use < use_count_[group]; ++use) {
      sums.push_back(FetchSum(group, use, context, batch));
    }
    const Piece held =
        builder_.Whole(spec_.placement.home(group, ShardKind::kGradient) == Tier::kVram
                           ? home
                           : builder_.Value(accumulator_ring_, Elements(group) * element_bytes,
                                            {ShardKind::kGradient, group}, batch));
    Op reduce = context;
    reduce.kind = OpKind::kReduce;
    reduce.group = group;
    reduce.accesses = {WriteOf(held), WriteOf(builder_.Whole(norms_.at(group)))};
    for (const Piece& sum : sums) reduce.accesses.push_back(ReadOf(sum));
    builder_.Emit(std::move(reduce));
    SendHome(held, home, element_bytes, group, context);
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

  const PlanSpec& spec_;
  const ModelShape& model_;
  PlanBuilder builder_;
  uint32_t weight_ring_ = 0, accumulator_ring_ = 0, activation_ring_ = 0, staging_ring_ = 0;
  std::map<std::pair<uint32_t, ShardKind>, uint32_t> homes_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> partials_;  // by group and use
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> use_;       // which use of the group, by block
  std::vector<uint32_t> use_count_;
  std::map<uint32_t, uint32_t> norms_;  // by trainable group
  std::vector<uint32_t> losses_;        // by micro-batch
  uint32_t coefficient_ = 0;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t>
      activation_homes_;             // by block and place in wave
  std::vector<uint32_t> gradients_;  // of the blocks' outputs, by place in wave
};

}  // namespace

Result<StepPlan> CompileStepPlan(const PlanSpec& spec) {
  return Compiler(spec).Run();
}

}  // namespace marea
