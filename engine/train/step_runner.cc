#include "engine/train/step_runner.h"

#include <c10/core/Device.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/model/gpu_ops.h"
#include "engine/model/torch_cuda.h"
#include "engine/model/torch_runtime.h"

namespace marea {
namespace {

constexpr uint32_t kQueueMax = 8;

c10::Device TorchDevice(std::optional<int> gpu) {
  return gpu ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*gpu))
             : c10::Device(c10::kCPU);
}

// How often a wait looks whether the run has failed.
constexpr std::chrono::milliseconds kPollInterval(50);

template <typename T>
T* As(std::span<std::byte> span) {
  return reinterpret_cast<T*>(span.data());
}

const Content& ContentOf(const OpCall& call, size_t access) {
  return call.plan->buffers[call.op().accesses[access].buffer].content;
}

// The first access of an op whose buffer holds this kind, from `begin` on.
size_t FindKind(const OpCall& call, ShardKind kind, size_t begin) {
  size_t i = begin;
  while (i < call.spans.size() && ContentOf(call, i).kind != kind) ++i;
  return i;
}

// An accumulator that is only written begins the step's sum.
Accumulate ModeOf(const OpCall& call, size_t first_accumulator) {
  const bool begins = first_accumulator < call.spans.size() &&
                      call.op().accesses[first_accumulator].mode == AccessMode::kWrite;
  return begins ? Accumulate::kFirst : Accumulate::kAdd;
}

}  // namespace

Result<std::unique_ptr<StepRunner>> StepRunner::Create(const StepRunnerOptions& options) {
  std::unique_ptr<StepRunner> runner(new StepRunner(options));
  MAREA_ASSIGN_OR_RETURN(runner->pool_,
                         WorkerPool::Create(static_cast<int>(options.optimizer_threads), "adamw"));
  MAREA_ASSIGN_OR_RETURN(runner->blocks_,
                         BlockCompute::Create(*options.spec->model, options.batch,
                                              options.spec->precision, TorchDevice(options.gpu)));
  runner->optimizer_ = std::make_unique<LaneThread>("optimizer", kQueueMax);
  return runner;
}

StepRunner::StepRunner(const StepRunnerOptions& options)
    : options_(options), rows_(options.spec->micro_count) {
  const size_t count = size_t{options.batch.sequences} * options.batch.sequence_length;
  for (TokenRows& rows : rows_) {
    rows.tokens.resize(count);
    rows.labels.resize(count);
    rows.weights.resize(count);
  }
}

StepRunner::~StepRunner() {
  Shutdown();
}

void StepRunner::Shutdown() {
  if (optimizer_) optimizer_->Shutdown();
}

void StepRunner::SetTurn(uint64_t turn, const TurnInputs& inputs) {
  MutexLock lock(mutex_);
  inputs_.emplace_back(turn, inputs);
}

TurnInputs StepRunner::InputsOf(uint64_t turn) {
  MutexLock lock(mutex_);
  // A lane is never more than one turn behind another.
  while (inputs_.front().first + 2 < turn) inputs_.pop_front();
  for (const auto& [number, inputs] : inputs_) {
    if (number == turn) return inputs;
  }
  MAREA_CHECK(false, "a turn was enqueued without its inputs");
}

void StepRunner::Start(const OpCall& call, Completion done) {
  switch (call.op().lane) {
    case Lane::kCpu:
      optimizer_->Post([this, call, done = std::move(done)] { done(Optimize(call)); });
      return;
    case Lane::kComm:
      options_.device->Run(
          call, [this, call] { return Communicate(call); }, UnlessFailed(std::move(done)));
      return;
    default:
      options_.device->Run(
          call, [this, call] { return Compute(call); }, std::move(done));
  }
}

// A collective that was ended early is complete to its stream.
Completion StepRunner::UnlessFailed(Completion done) const {
  return Completion([comm = options_.comm,
                     done](const Status& status) { done(status.ok() ? comm->failure() : status); },
                    [done] { done.Launched(); });
}

Status StepRunner::Communicate(const OpCall& call) {
  switch (call.op().kind) {
    case OpKind::kGather:
      return options_.comm->AllGather(call.spans[0], call.spans[1]);
    case OpKind::kReduceScatter:
      return options_.comm->ReduceScatter(
          {As<float>(call.spans[0]), call.spans[0].size() / sizeof(float)});
    default:
      return Status::Failed(std::string("no collective ") + OpKindName(call.op().kind));
  }
}

// Once, on the thread that computes.
void StepRunner::EnterCompute() {
  if (std::exchange(entered_, true)) return;
  EnterComputeThread();
  if (options_.gpu) EnterComputeStream(*options_.gpu);
}

Status StepRunner::Compute(const OpCall& call) {
  EnterCompute();
  switch (call.op().kind) {
    case OpKind::kForward:
      return RunForward(call);
    case OpKind::kBackward:
      return RunBackward(call);
    case OpKind::kForwardBackward:
    case OpKind::kHeadEval:
      return RunHead(call);
    case OpKind::kReduce:
      return RunReduce(call);
    case OpKind::kUpdate:
      return RunUpdateOnGpu(call);
    default:
      return Status::Failed(std::string("no arithmetic for ") + OpKindName(call.op().kind));
  }
}

Status StepRunner::Optimize(const OpCall& call) {
  switch (call.op().kind) {
    case OpKind::kUpdate:
      RunUpdate(call);
      return Status::Ok();
    case OpKind::kClip:
      return RunClip(call);
    default:
      return Status::Failed(std::string("no optimizer op ") + OpKindName(call.op().kind));
  }
}

// The embedding comes first in a turn: it reads the data; the head and the embedding's backward
// find it there.
MicroBatch StepRunner::FillMicroBatch(const OpCall& call) {
  const Op& op = call.op();
  TokenRows& rows = rows_[op.micro];
  if (op.kind == OpKind::kForward && op.block == 0) {
    const TurnInputs inputs = InputsOf(call.turn);
    inputs.batches->Fill(inputs.batch_step, op.micro, rows.tokens, rows.labels, rows.weights);
  }
  return {rows.tokens.data(), rows.labels.data(), rows.weights.data()};
}

Status StepRunner::RunForward(const OpCall& call) {
  const MicroBatch micro_batch = FillMicroBatch(call);
  const size_t weights = FindKind(call, ShardKind::kWeight, 0);
  return blocks_->Forward(call.op().block, micro_batch, call.spans.subspan(weights),
                          weights > 1 ? call.spans[1] : ByteSpan(), call.spans[0]);
}

Status StepRunner::RunBackward(const OpCall& call) {
  const MicroBatch micro_batch = FillMicroBatch(call);
  const bool embedding = call.op().block == 0;
  const size_t weights = embedding ? 1 : 2;
  const size_t sums = FindKind(call, ShardKind::kPartial, weights);
  return blocks_->Backward(call.op().block, micro_batch,
                           call.spans.subspan(weights, sums - weights),
                           embedding ? ByteSpan() : call.spans[1], call.spans[0],
                           call.spans.subspan(sums), ModeOf(call, sums));
}

Status StepRunner::RunHead(const OpCall& call) {
  const Op& op = call.op();
  const MicroBatch micro_batch = FillMicroBatch(call);
  double* loss = As<double>(call.spans[0]);
  if (op.kind == OpKind::kHeadEval) {
    return blocks_->HeadEval(op.block, micro_batch, call.spans.subspan(2), call.spans[1], loss);
  }
  const TurnInputs inputs = InputsOf(call.turn);
  const double total_weight = inputs.batches->Step(inputs.batch_step).token_weight;
  const size_t sums = FindKind(call, ShardKind::kPartial, 3);
  const Status status = blocks_->ForwardBackward(
      op.block, micro_batch, call.spans.subspan(3, sums - 3), call.spans[2], call.spans[1],
      call.spans.subspan(sums), ModeOf(call, sums), total_weight, loss);
  if (op.micro + 1 == call.mask.micro_count) {
    MutexLock lock(mutex_);
    heads_done_ = call.turn + 1;
    changed_.NotifyAll();
  }
  return status;
}

Status StepRunner::RunReduce(const OpCall& call) {
  return blocks_->Reduce(call.spans.subspan(2), call.spans[0], options_.spec->gradient_precision,
                         As<double>(call.spans[1]));
}

void StepRunner::RunUpdate(const OpCall& call) {
  AdamWChunk chunk = ChunkOf(call);
  chunk.gradient_scale = static_cast<float>(*As<double>(call.spans.back()));
  RunAdamW(*pool_, chunk, InputsOf(call.turn).update, options_.simd_level);
}

Status StepRunner::RunUpdateOnGpu(const OpCall& call) {
  return gpu::Update(ChunkOf(call), As<double>(call.spans.back()), InputsOf(call.turn).update,
                     *options_.gpu);
}

AdamWChunk StepRunner::ChunkOf(const OpCall& call) const {
  const PlanSpec& spec = *options_.spec;
  AdamWChunk chunk;
  size_t next = 0;
  chunk.elements = call.spans[0].size() / WeightBytes(spec.precision);
  if (spec.precision == Precision::kBf16) {
    chunk.weight_bf16 = As<uint16_t>(call.spans[next++]);
    chunk.master_low = As<uint16_t>(call.spans[next++]);
  } else {
    chunk.weight_fp32 = As<float>(call.spans[next++]);
  }
  chunk.moment1 = As<float>(call.spans[next++]);
  chunk.moment2 = As<float>(call.spans[next++]);
  if (spec.gradient_precision == Precision::kBf16) {
    chunk.gradient_bf16 = As<uint16_t>(call.spans[next]);
  } else {
    chunk.gradient_fp32 = As<float>(call.spans[next]);
  }
  return chunk;
}

Result<StepRunner::Sums> StepRunner::AddOverRanks(const Sums& own) {
  if (!options_.sums) return own;
  std::vector<Sums> all(options_.spec->partition.world_size);
  MAREA_RETURN_IF_ERROR(options_.sums->AllGather(std::as_bytes(std::span(&own, 1)),
                                                 std::as_writable_bytes(std::span(all))));
  Sums total;
  for (const Sums& one : all) {
    total.loss += one.loss;
    total.square += one.square;
    total.stop += one.stop;
  }
  return total;
}

// The coefficient of torch.nn.utils.clip_grad_norm_, from sums in a fixed order.
Status StepRunner::RunClip(const OpCall& call) {
  TurnOutcome outcome{.turn = call.turn};
  Sums own;
  uint32_t losses = 0;
  for (size_t i = 1; i < call.spans.size(); ++i) {
    const double value = *As<double>(call.spans[i]);
    const bool norm = ContentOf(call, i).group != kNone;
    if (norm && call.mask.train) own.square += value;
    if (!norm && losses++ < call.mask.micro_count) own.loss += value;
  }
  own.stop = options_.stop && options_.stop->load(std::memory_order_relaxed) ? 1 : 0;
  MAREA_ASSIGN_OR_RETURN(const Sums total, AddOverRanks(own));
  const TurnInputs inputs = InputsOf(call.turn);
  const double weight = inputs.batches->Step(inputs.batch_step).token_weight;
  outcome.loss = weight > 0 ? total.loss / weight : 0;
  outcome.stop = total.stop > 0;
  if (call.mask.train) {
    outcome.grad_norm = std::sqrt(total.square);
    double coefficient = 1;
    if (options_.gradient_clipping > 0) {
      coefficient = std::min(1.0, options_.gradient_clipping / (outcome.grad_norm + 1e-6));
    }
    *As<double>(call.spans[0]) = coefficient;
  }
  MutexLock lock(mutex_);
  outcomes_.push_back(outcome);
  changed_.NotifyAll();
  return Status::Ok();
}

TurnOutcome StepRunner::WaitForOutcome(const std::function<bool()>& give_up) {
  MutexLock lock(mutex_);
  while (outcomes_.empty()) {
    if (give_up()) return {.turn = UINT64_MAX};
    changed_.WaitFor(mutex_, kPollInterval);
  }
  const TurnOutcome outcome = outcomes_.front();
  outcomes_.pop_front();
  return outcome;
}

void StepRunner::WaitForHead(uint64_t turn, const std::function<bool()>& give_up) {
  MutexLock lock(mutex_);
  while (heads_done_ <= turn && !give_up()) changed_.WaitFor(mutex_, kPollInterval);
}

}  // namespace marea
