// What a run was asked to do: a DeepSpeed file and the flags over it, checked and filled.
//
// ParseTrainingConfig (deepspeed_config.h) makes one. Keys keep DeepSpeed's meaning. Fields without
// an optional hold what the run uses. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace marea {

enum class OffloadDevice : uint8_t { kNone, kCpu, kNvme };

// Homes. offload_param fixes the home of weights, offload_optimizer that of the rest of the master
// and the moments.
struct OffloadConfig {
  bool present = false;  // the section is in the file and has a meaning at this stage
  OffloadDevice device = OffloadDevice::kNone;
  std::optional<std::string> nvme_path;  // set whenever device is kNvme, unless --nvme replaces it
  double ratio = 1.0;                    // offload_optimizer: share of the states that is offloaded
  std::optional<bool> pin_memory;
  std::optional<uint64_t> buffer_count;
  std::optional<uint64_t> buffer_size;  // offload_param, elements
  std::optional<uint64_t> max_in_cpu;   // offload_param, elements
};

struct ZeroConfig {
  uint32_t stage = 0;
  OffloadConfig offload_param;
  OffloadConfig offload_optimizer;
};

// train_batch_size = micro_batch * accumulation_steps * world size.
struct BatchConfig {
  uint64_t train_batch_size = 0;
  uint32_t micro_batch = 0;
  uint32_t accumulation_steps = 0;
};

// AdamW with decoupled weight decay. Defaults are DeepSpeed's for a named optimizer without the
// key.
struct OptimizerConfig {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

enum class SchedulerType : uint8_t { kConstant, kWarmup, kWarmupDecay, kWarmupCosine };
enum class WarmupType : uint8_t { kLog, kLinear };

struct SchedulerConfig {
  SchedulerType type = SchedulerType::kConstant;
  double warmup_min_lr = 0.0;     // kWarmup, kWarmupDecay
  double warmup_max_lr = 0.0;     // kWarmup, kWarmupDecay
  double warmup_min_ratio = 0.0;  // kWarmupCosine
  double cos_min_ratio = 1e-4;    // kWarmupCosine
  uint64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
  // kWarmupDecay, kWarmupCosine: absent only if it was "auto" and the steps of the run are not
  // known yet. The trainer sets it before the first step.
  std::optional<uint64_t> total_num_steps;
  // kWarmupDecay and kWarmupCosine with an absent total_num_steps.
  bool needs_total_steps() const {
    return (type == SchedulerType::kWarmupDecay || type == SchedulerType::kWarmupCosine) &&
           !total_num_steps.has_value();
  }
};

// DeepSpeed's asynchronous I/O settings, honoured where the file names them.
struct AioConfig {
  std::optional<uint64_t> block_size;  // a multiple of 4096
  std::optional<uint64_t> queue_depth;
  std::optional<uint64_t> thread_count;  // also intra_op_parallelism
  std::optional<bool> single_submit;
  std::optional<bool> overlap_events;
};

// Held gradients, and whether weights are split into a bf16 half and the rest.
enum class FloatType : uint8_t { kFp32, kBf16 };

struct TrainingConfig {
  FloatType precision = FloatType::kFp32;      // kBf16 if bf16.enabled
  FloatType gradient_type = FloatType::kFp32;  // data_types.grad_accum_dtype, else as precision
  BatchConfig batch;
  ZeroConfig zero;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  double gradient_clipping = 0.0;  // 0: off
  AioConfig aio;

  std::vector<std::string> warnings;  // unknown top-level keys, deprecated names
  std::vector<std::string> notices;   // keys without effect, mapped names, what "auto" became
};

// What the command line adds. Absent: not given.
struct ConfigOverrides {
  uint32_t world_size = 1;
  std::optional<uint32_t> micro_batch;  // --micro-batch
  std::optional<double> learning_rate;  // --learning-rate
  std::optional<uint64_t> total_steps;  // --steps
  bool nvme_paths_given = false;        // --nvme replaces every nvme_path
};

}  // namespace marea
