#include "engine/config/known_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "io/check.h"

namespace marea {
namespace {

using enum KeyKind;

constexpr std::string_view kPlanSizes = "the step plan sizes its own buffers and their reach";
constexpr std::string_view kPlanOverlaps = "the step plan always overlaps compute and transfers";
constexpr std::string_view kExactExchange =
    "values are exchanged between ranks exactly, in one way";
constexpr std::string_view kEager =
    "it tunes how eager PyTorch modules are run, and there are none";
constexpr std::string_view kPinned = "the RAM arena is pinned where the system allows it";
constexpr std::string_view kRamBudget = "the RAM budget decides what stays in RAM";
constexpr std::string_view kSaved = "checkpoints are always complete and independent of the ranks";
constexpr std::string_view kOwnMetrics =
    "metrics.jsonl, summary.json and trace.json are always written";
constexpr std::string_view kOwnRanks = "one optimizer and one exchange serve every placement";
constexpr std::string_view kRecompute = "block inputs are always kept and blocks recomputed";
constexpr std::string_view kAllSamples =
    "the last incomplete batch is filled up with rows of weight 0";
constexpr std::string_view kOffByDefault = "it is off";

constexpr KeySpec kTopLevelKeys[] = {
    {"train_batch_size", kCount},
    {"train_micro_batch_size_per_gpu", kCount},
    {"gradient_accumulation_steps", kCount},
    {"bf16", kObject},
    {"bfloat16", kObject},
    {"fp16", kObject},
    {"zero_optimization", kAny},
    {"optimizer", kObject},
    {"scheduler", kObject},
    {"gradient_clipping", kNumber},
    {"data_types", kObject},
    {"aio", kObject},
    {"gradient_allreduce_op", kText},
    {"sequence_parallel_size", kCount},
    {"tensor_parallel", kObject},
    {"steps_per_print", kCount, kOwnMetrics},
    {"wall_clock_breakdown", kFlag, kOwnMetrics},
    {"memory_breakdown", kFlag, kOwnMetrics},
    {"dump_state", kFlag, kOwnMetrics},
    {"log_level", kAny, kOwnMetrics},
    {"flops_profiler", kObject, kOwnMetrics},
    {"tensorboard", kObject, kOwnMetrics},
    {"wandb", kObject, kOwnMetrics},
    {"comet", kObject, kOwnMetrics},
    {"csv_monitor", kObject, kOwnMetrics},
    {"monitor_config", kObject, kOwnMetrics},
    {"comms_logger", kObject, kOwnMetrics},
    {"timers", kObject, kOwnMetrics},
    {"vocabulary_size", kCount, kOwnMetrics},
    {"disable_allgather", kFlag, kExactExchange},
    {"communication_data_type", kText, kExactExchange},
    {"seq_parallel_communication_data_type", kText, kExactExchange},
    {"seq_parallel_comm_data_type", kText, kExactExchange},
    {"prescale_gradients", kFlag, kExactExchange},
    {"gradient_predivide_factor", kNumber, kExactExchange},
    {"sparse_gradients", kFlag, kExactExchange},
    {"allgather_size", kCount, kPlanSizes},
    {"use_data_before_expert_parallelism", kFlag, kOwnRanks},
    {"data_parallel_group", kAny, kOwnRanks},
    {"zero_allow_untested_optimizer", kFlag, kOwnRanks},
    {"zero_force_ds_cpu_optimizer", kFlag, kOwnRanks},
    {"managed_gradient_accumulation", kAny, kOwnRanks},
    {"activation_checkpointing", kObject, kRecompute},
    {"checkpoint", kObject, kSaved},
    {"nebula", kObject, kSaved},
    {"datastates", kObject, kSaved},
    {"dataloader_drop_last", kFlag, kAllSamples},
    {"graph_harvesting", kFlag, kEager},
    {"compile", kObject, kEager},
    {"pipeline", kObject, kEager},
    {"autotuning", kObject, kPlanSizes},
    // Sections that change what is trained: refused where they are on.
    {"amp", kObject, kOffByDefault},
    {"torch_autocast", kObject, kOffByDefault},
    {"curriculum_learning", kObject, kOffByDefault},
    {"data_efficiency", kObject, kOffByDefault},
    {"compression_training", kObject, kOffByDefault},
    {"quantize_training", kObject, kOffByDefault},
    {"progressive_layer_drop", kObject, kOffByDefault},
    {"eigenvalue", kObject, kOffByDefault},
    {"elasticity", kObject, kOffByDefault},
    {"hybrid_engine", kObject, kOffByDefault},
    {"expert_parallel", kObject, kOffByDefault},
    {"sparse_attention", kObject, kOffByDefault},
    {"weight_quantization", kObject, kOffByDefault},
};

constexpr KeySpec kZeroKeys[] = {
    {"stage", kCount},
    {"offload_param", kObject},
    {"offload_optimizer", kObject},
    {"cpu_offload", kFlag},
    {"cpu_offload_param", kFlag},
    {"zenflow", kAny},
    {"contiguous_gradients", kFlag, kPlanSizes},
    {"reduce_scatter", kFlag, kExactExchange},
    {"reduce_bucket_size", kCount, kPlanSizes},
    {"use_multi_rank_bucket_allreduce", kFlag, kExactExchange},
    {"allgather_partitions", kFlag, kExactExchange},
    {"allgather_bucket_size", kCount, kPlanSizes},
    {"overlap_comm", kFlag, kPlanOverlaps},
    {"load_from_fp32_weights", kFlag, kSaved},
    {"elastic_checkpoint", kFlag, kSaved},
    {"sub_group_size", kCount, kPlanSizes},
    {"cpu_offload_use_pin_memory", kFlag, kPinned},
    {"stage3_prefetch_bucket_size", kCount, kPlanSizes},
    {"prefetch_bucket_size", kCount, kPlanSizes},
    {"stage3_param_persistence_threshold", kCount},
    {"param_persistence_threshold", kCount},
    {"stage3_model_persistence_threshold", kCount, kPlanSizes},
    {"model_persistence_threshold", kCount, kPlanSizes},
    {"stage3_max_live_parameters", kCount, kPlanSizes},
    {"max_live_parameters", kCount, kPlanSizes},
    {"stage3_max_reuse_distance", kCount, kPlanSizes},
    {"max_reuse_distance", kCount, kPlanSizes},
    {"stage3_gather_16bit_weights_on_model_save", kFlag, kSaved},
    {"gather_16bit_weights_on_model_save", kFlag, kSaved},
    {"stage3_gather_fp16_weights_on_model_save", kFlag, kSaved},
    {"stage3_module_granularity_threshold", kCount, kEager},
    {"module_granularity_threshold", kCount, kEager},
    {"stage3_use_all_reduce_for_fetch_params", kFlag, kExactExchange},
    {"use_all_reduce_for_fetch_params", kFlag, kExactExchange},
    {"stage3_allgather_sequential", kFlag, kExactExchange},
    {"allgather_sequential", kFlag, kExactExchange},
    {"stage3_partition_stream_chunk_size", kCount, kPlanSizes},
    {"partition_stream_chunk_size", kCount, kPlanSizes},
    {"ignore_unused_parameters", kFlag, kEager},
    {"legacy_stage1", kFlag, kOwnRanks},
    {"round_robin_gradients", kFlag, kPlanOverlaps},
    {"zero_hpz_partition_size", kCount, kExactExchange},
    {"zero_quantized_weights", kFlag, kExactExchange},
    {"zero_quantized_nontrainable_weights", kFlag, kExactExchange},
    {"zero_quantized_gradients", kFlag, kExactExchange},
    {"zeropp_loco_param", kAny, kExactExchange},
    {"mics_shard_size", kNumber, kExactExchange},  // -1 is its default
    {"mics_hierarchical_params_gather", kFlag, kExactExchange},
    {"memory_efficient_linear", kFlag, kEager},
    {"pipeline_loading_checkpoint", kFlag, kSaved},
    {"override_module_apply", kFlag, kEager},
    {"log_trace_cache_warnings", kFlag, kOwnMetrics},
    {"enable_sanity_checks", kFlag, kEager},
    {"save_muon_momentum_buffer_in_memory", kFlag, kRamBudget},
    {"leaf_module", kAny, kEager},
};

constexpr KeySpec kOffloadParamKeys[] = {
    {"device", kText},
    {"nvme_path", kText},
    {"buffer_count", kCount, kPlanSizes},
    {"buffer_size", kCount, kPlanSizes},
    {"max_in_cpu", kCount, kRamBudget},
    {"pin_memory", kFlag, kPinned},
};

constexpr KeySpec kOffloadOptimizerKeys[] = {
    {"device", kText},
    {"nvme_path", kText},
    {"ratio", kNumber},
    {"buffer_count", kCount, kPlanSizes},
    {"pin_memory", kFlag, kPinned},
    {"pipeline_read", kFlag, kPlanOverlaps},
    {"pipeline_write", kFlag, kPlanOverlaps},
    {"fast_init", kFlag, kPlanOverlaps},
    {"super_offload", kFlag, kPlanOverlaps},
    {"convert_grad_on_cpu", kFlag, kPlanOverlaps},
    {"cpuadam_cores_perc", kNumber, kPlanSizes},
};

constexpr KeySpec kOptimizerKeys[] = {
    {"type", kText},
    {"params", kObject},
    {"legacy_fusion", kFlag, kOwnRanks},
};

constexpr KeySpec kOptimizerParamsKeys[] = {
    {"lr", kNumber},
    {"betas", kAny},
    {"eps", kNumber},
    {"weight_decay", kNumber},
    {"adam_w_mode", kFlag},
    {"torch_adam", kFlag},
    {"bias_correction", kFlag},
    {"amsgrad", kFlag},
    {"max_grad_norm", kNumber},
    {"set_grad_none", kFlag, kOwnRanks},
    {"adamw_mode", kFlag},
    {"fp32_optimizer_states", kFlag},
    {"fused", kFlag, kOwnRanks},
    {"foreach", kFlag, kOwnRanks},
};

constexpr KeySpec kSchedulerKeys[] = {{"type", kText}, {"params", kObject}};

constexpr KeySpec kSchedulerParamsKeys[] = {
    {"warmup_min_lr", kNumber}, {"warmup_max_lr", kNumber},        {"warmup_num_steps", kCount},
    {"warmup_type", kText},     {"total_num_steps", kCount},       {"warmup_min_ratio", kNumber},
    {"cos_min_ratio", kNumber}, {"last_batch_iteration", kNumber},
};

constexpr KeySpec kBf16Keys[] = {
    {"enabled", kFlag},
    {"bf16_master_weights_and_grads", kFlag},
    {"bf16_optimizer_states", kFlag},
    {"immediate_grad_update", kFlag, kPlanOverlaps},
    {"check_grad_overflow", kFlag, kExactExchange},
    {"auto_cast", kFlag, kEager},
};

constexpr KeySpec kFp16Keys[] = {
    {"enabled", kFlag},
    {"auto_cast", kAny},
    {"loss_scale", kAny},
    {"initial_scale_power", kAny},
    {"loss_scale_window", kAny},
    {"hysteresis", kAny},
    {"consecutive_hysteresis", kAny},
    {"min_loss_scale", kAny},
    {"fused_mode", kAny},
    {"fp16_master_weights_and_grads", kAny},
};

constexpr KeySpec kDataTypesKeys[] = {
    {"grad_accum_dtype", kText},
    {"param_dtype", kText},
    {"buffer_dtype", kText, kEager},
};

constexpr KeySpec kAioKeys[] = {
    {"block_size", kCount},   {"queue_depth", kCount},
    {"thread_count", kCount}, {"intra_op_parallelism", kCount},
    {"single_submit", kFlag}, {"overlap_events", kFlag},
    {"use_gds", kFlag},
};

constexpr SectionSpec kSections[] = {
    {kTopLevel, kTopLevelKeys},
    {kZero, kZeroKeys},
    {kOffloadParam, kOffloadParamKeys},
    {kOffloadOptimizer, kOffloadOptimizerKeys},
    {kOptimizer, kOptimizerKeys},
    {kOptimizerParams, kOptimizerParamsKeys},
    {kScheduler, kSchedulerKeys},
    {kSchedulerParams, kSchedulerParamsKeys},
    {kBf16, kBf16Keys},
    {kFp16, kFp16Keys},
    {kDataTypes, kDataTypesKeys},
    {kAio, kAioKeys},
};

bool IsSubsequence(std::string_view part, std::string_view whole) {
  for (const char c : whole) {
    if (!part.empty() && part.front() == c) part.remove_prefix(1);
  }
  return part.empty();
}

// Edit distance, but a word left out or put in ("warmup_steps") counts half of its letters.
uint32_t Distance(std::string_view key, std::string_view known) {
  const uint32_t distance = EditDistance(key, known);
  const bool only_words = IsSubsequence(key, known) || IsSubsequence(known, key);
  return only_words ? (distance + 1) / 2 : distance;
}

bool Has(const SectionSpec& section, std::string_view key) {
  return std::any_of(section.keys.begin(), section.keys.end(),
                     [&](const KeySpec& spec) { return spec.name == key; });
}

}  // namespace

std::span<const KeySpec> KeysOf(std::string_view path) {
  for (const SectionSpec& section : kSections) {
    if (section.path == path) return section.keys;
  }
  MAREA_CHECK(false, "no such section of a DeepSpeed file");
  return {};
}

uint32_t EditDistance(std::string_view a, std::string_view b) {
  // Three rows suffice: a swap of neighbours looks two back.
  std::vector<uint32_t> two_back(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<uint32_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<uint32_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const uint32_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_back[j - 2] + 1);
      }
    }
    std::swap(two_back, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string SectionName(std::string_view path) {
  return path.empty() ? "at the top level" : fmt::format("in {}", path);
}

std::string SuggestKey(std::string_view path, std::string_view key) {
  for (const SectionSpec& section : kSections) {
    if (section.path != path && Has(section, key)) {
      return fmt::format("it belongs {}", SectionName(section.path));
    }
  }
  std::string_view nearest;
  // A third of the key may be wrong; a suggestion further away would mislead.
  uint32_t best = std::max<uint32_t>(2, static_cast<uint32_t>(key.size()) / 3) + 1;
  for (const KeySpec& spec : KeysOf(path)) {
    const uint32_t distance = Distance(key, spec.name);
    if (distance < best) {
      best = distance;
      nearest = spec.name;
    }
  }
  return nearest.empty() ? std::string() : fmt::format("did you mean \"{}\"?", nearest);
}

}  // namespace marea
