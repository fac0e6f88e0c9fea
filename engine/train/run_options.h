// What the user asked for on the command line, parsed but not yet checked against model, data,
// config and machine. src fills it; PrepareRun (run_setup.h) checks it. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/planner.h"

namespace marea {

enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda };

// A budget as given: bytes, or a share of what there is.
struct SizeLimit {
  std::optional<uint64_t> bytes;
  std::optional<double> fraction;  // 0.4 for "40%"
};

struct NvmePath {
  std::string path;
  SizeLimit limit;  // neither: what the plan needs, at most 90% of free space
};

struct RunOptions {
  std::string model_path;
  std::string data_path;
  std::string config_path;
  std::string output_path;  // may be empty where nothing is written (`marea plan`)
  std::optional<uint32_t> sequence_length;
  std::optional<uint64_t> steps;
  std::optional<uint64_t> epochs;
  std::optional<uint32_t> micro_batch;
  std::optional<double> learning_rate;
  std::optional<std::string> eval_data_path;
  std::optional<uint64_t> eval_every;
  DeviceChoice device = DeviceChoice::kAuto;
  OptimizerDevice optimizer_device = OptimizerDevice::kAuto;
  std::optional<SizeLimit> vram;
  std::optional<SizeLimit> ram;
  std::vector<NvmePath> nvme;
  uint32_t slots = 2;
  std::optional<uint32_t> wave_size;
  uint64_t seed = 42;
  bool deterministic = false;
  std::optional<uint32_t> threads;
  // Several ranks: how long they wait for each other to meet, and after how long a silent one
  // counts as gone.
  std::optional<uint32_t> rank_timeout_seconds;
  std::optional<uint32_t> stall_limit_seconds;
};

}  // namespace marea
