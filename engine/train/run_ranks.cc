#include "engine/train/run_ranks.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/nccl_communicator.h"
#include "engine/model/torch_runtime.h"
#include "engine/report/version.h"

namespace marea {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// Samples that stand for the data, spread over all of it: another file of the same size shows.
constexpr uint64_t kDigestSamples = 64;
// Elements that stand for a tensor of the initial weights.
constexpr uint64_t kDigestElements = 1024;

std::string DigestOf(const Dataset& data, uint32_t sequence_length) {
  std::vector<int32_t> tokens(sequence_length), labels(sequence_length);
  std::vector<float> weights(sequence_length);
  XXH64_hash_t digest = 0;
  const uint64_t count = std::min(kDigestSamples, data.samples());
  for (uint64_t i = 0; i < count; ++i) {
    data.ReadSample(data.samples() / count * i, tokens.data(), labels.data(), weights.data());
    digest = XXH3_64bits_withSeed(tokens.data(), tokens.size() * sizeof(tokens[0]), digest);
  }
  return fmt::format("{} samples, digest {:016x}", data.samples(), digest);
}

Result<std::string> DigestOf(const ModelWeights* weights, const ModelShape& model) {
  if (!weights) return std::string("random");
  std::vector<float> values(kDigestElements);
  XXH64_hash_t digest = 0;
  for (const GroupShape& group : model.groups) {
    for (const TensorShape& tensor : group.tensors) {
      const uint64_t count = std::min(kDigestElements, tensor.elements);
      MAREA_RETURN_IF_ERROR(weights->Read(tensor, 0, count, values.data()));
      digest = XXH3_64bits_withSeed(values.data(), count * sizeof(values[0]), digest);
    }
  }
  return fmt::format("the folder's, digest {:016x}", digest);
}

// Ranks with other budgets may have other plans, but what they do together must be in one order.
std::string CollectivesOf(const StepPlan& plan) {
  XXH64_hash_t digest = 0;
  for (const uint32_t index : plan.lane_ops[static_cast<int>(Lane::kComm)]) {
    const Op& op = plan.ops[index];
    const uint64_t words[] = {static_cast<uint64_t>(op.kind), static_cast<uint64_t>(op.when),
                              op.group, op.accesses.back().bytes};
    digest = XXH3_64bits_withSeed(words, sizeof(words), digest);
  }
  return fmt::format("digest {:016x}", digest);
}

// What must be the same on every rank, named as it reads in "with another <name>".
Result<Facts> FactsOf(const RunSetup& setup) {
  const TrainingConfig& config = setup.config;
  MAREA_ASSIGN_OR_RETURN(const std::string weights, DigestOf(setup.weights.get(), *setup.model));
  const OptimizerConfig& optimizer = config.optimizer;
  std::string nccl = "none";
  if (setup.gpu) {
    MAREA_ASSIGN_OR_RETURN(nccl, NcclVersion());
  }
  Facts facts = {
      {"version of marea", Version()},
      {"version of torch", TorchVersion()},
      {"device (pass --device)", setup.gpu ? "cuda" : "cpu"},
      {"version of NCCL", nccl},
      {"model", setup.folder.config_text},
      {"choice of initial weights", weights},
      {"seed", fmt::format("{}", setup.options.seed)},
      {"sequence length", fmt::format("{}", setup.batch.sequence_length)},
      {"micro-batch", fmt::format("{}", config.batch.micro_batch)},
      {"number of accumulation steps", fmt::format("{}", config.batch.accumulation_steps)},
      {"number of steps", fmt::format("{}", setup.steps)},
      {"content of the data", DigestOf(*setup.data, setup.batch.sequence_length)},
      {"precision",
       fmt::format("{}/{}", WeightBytes(config.precision), WeightBytes(config.gradient_type))},
      {"ZeRO stage", fmt::format("{}", config.zero.stage)},
      {"stage3_param_persistence_threshold", fmt::format("{}", config.zero.persistence_threshold)},
      {"gradient_clipping", fmt::format("{}", config.gradient_clipping)},
      {"optimizer",
       fmt::format("lr {} betas {} {} eps {} decay {}", optimizer.learning_rate, optimizer.beta1,
                   optimizer.beta2, optimizer.epsilon, optimizer.weight_decay)},
      {"wave size (pass --wave)", fmt::format("{}", setup.planned.spec.wave_size)},
      {"order of collectives (give all the same --vram)", CollectivesOf(setup.planned.plan)},
      {"evaluation", fmt::format("{} steps every {}",
                                 setup.eval_batches ? setup.eval_batches->steps_per_pass() : 0,
                                 setup.options.eval_every.value_or(0))},
  };
  // Rates over the whole run, so that every kind of schedule is compared by what it does.
  std::string rates;
  for (uint64_t quarter = 0; quarter <= 4; ++quarter) {
    rates += fmt::format(
        "{} ", LearningRate(config.schedule, setup.steps * quarter / 4, optimizer.learning_rate));
  }
  facts.emplace_back("learning rate schedule", rates);
  return facts;
}

Status Connect(const RunSetup& setup, const Facts& facts, RunRanks& ranks) {
  RankGroup& group = *ranks.group;
  MAREA_RETURN_IF_ERROR(group.Agree(facts));
  MAREA_ASSIGN_OR_RETURN(ranks.shards, MakeGlooCommunicator(group, "shards"));
  MAREA_ASSIGN_OR_RETURN(ranks.sums, MakeGlooCommunicator(group, "sums"));
  if (setup.gpu) {
    MAREA_ASSIGN_OR_RETURN(ranks.gpus, MakeNcclCommunicator(group, "gpus", *setup.gpu));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<RunRanks>> JoinRanks(const RunSetup& setup) {
  if (setup.world.size == 1) return std::unique_ptr<RunRanks>();
  auto ranks = std::make_unique<RunRanks>();
  RankGroupOptions options;
  if (const auto seconds = setup.options.rank_timeout_seconds) {
    options.timeout = std::chrono::seconds(*seconds);
  }
  if (const auto seconds = setup.options.stall_limit_seconds) {
    options.stall_limit = std::chrono::seconds(*seconds);
  }
  MAREA_ASSIGN_OR_RETURN(const Facts facts, FactsOf(setup));
  MAREA_ASSIGN_OR_RETURN(ranks->group, RankGroup::Join(setup.world, options));
  const Status met = Connect(setup, facts, *ranks);
  if (met.code() == ErrorCode::kInvalidArgument) {
    // All ranks know, and leave together: none takes another's end for a death.
    (void)ranks->group->Leave();
  } else if (!met.ok()) {
    ranks->group->Fail(met);
  }
  MAREA_RETURN_IF_ERROR(met);
  return ranks;
}

uint64_t CommunicatorBytes(const World& world) {
  return world.size == 1 ? 0 : 2 * GlooScratchBytes(world.size);
}

}  // namespace marea
