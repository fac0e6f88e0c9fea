// What a run was asked to do: a DeepSpeed file and the flags over it, checked and filled.
//
// ParseTrainingConfig (deepspeed_config.h) makes one. Keys keep DeepSpeed's meaning. Fields without
// an optional hold what the run uses. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model_shape.h"
#include "engine/optim/lr_schedule.h"

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
  // Parameter groups of at most so many elements are not partitioned at stage 3.
  uint64_t persistence_threshold = 100'000;
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

// DeepSpeed's asynchronous I/O settings, honoured where the file names them.
struct AioConfig {
  std::optional<uint64_t> block_size;  // a multiple of 4096
  std::optional<uint64_t> queue_depth;
  std::optional<uint64_t> thread_count;  // also intra_op_parallelism
  std::optional<bool> single_submit;
  std::optional<bool> overlap_events;
};

struct TrainingConfig {
  Precision precision = Precision::kFp32;      // kBf16 if bf16.enabled
  Precision gradient_type = Precision::kFp32;  // data_types.grad_accum_dtype, else as precision
  BatchConfig batch;
  ZeroConfig zero;
  OptimizerConfig optimizer;
  LrSchedule schedule;
  // total_num_steps was "auto" and the steps of the run are not known yet: the trainer sets it, and
  // calls CheckLrSchedule, before the first step.
  bool schedule_needs_total_steps = false;
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
