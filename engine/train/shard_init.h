// Streams a model into and out of its homes, chunk by chunk: first values before the first step,
// final weights after the last. Never holds more than a chunk in memory of its own.
//
// Thread rule: one thread; only while no op of a plan is in flight. Blocks.
#pragma once

#include <functional>

#include "engine/checkpoint/model_weights.h"
#include "engine/plan/plan_spec.h"
#include "io/status.h"
#include "swap/shard_access.h"

namespace marea {

// Bytes done and in all.
using ProgressFunction = std::function<void(uint64_t, uint64_t)>;

// Writes every weight (from `weights`, or random by `seed` where it is null), its low half, and
// moments of zero.
Status InitialiseShards(const PlanSpec& spec, const ModelWeights* weights, uint64_t seed,
                        uint32_t threads, ShardAccess& shards, const ProgressFunction& progress);

}  // namespace marea
