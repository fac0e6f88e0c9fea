#include "src/run_flags.h"

#include <fmt/format.h>

#include "src/flag_values.h"

namespace marea {
namespace {

constexpr uint64_t kThreadsMax = 1024;
constexpr uint64_t kRankSecondsMax = 86400;

// An absent text leaves `target` as it is. T is uint32_t or an optional of it.
template <typename T>
Status SetSmall(const char* flag, const std::string& text, uint64_t least, uint64_t most,
                T& target) {
  if (text.empty()) return Status::Ok();
  MAREA_ASSIGN_OR_RETURN(const uint64_t value, ParseCount(flag, text, least, most));
  target = static_cast<uint32_t>(value);
  return Status::Ok();
}

Status SetCount(const char* flag, const std::string& text, std::optional<uint64_t>& target) {
  if (text.empty()) return Status::Ok();
  MAREA_ASSIGN_OR_RETURN(target, ParseCount(flag, text, 1, UINT64_MAX));
  return Status::Ok();
}

Status CheckRequired(const RunFlags& flags, OutputNeed output) {
  std::string missing;
  const auto need = [&](const char* flag, const std::string& text) {
    if (text.empty()) missing += (missing.empty() ? "" : " and ") + std::string(flag);
  };
  need("--model DIR", flags.model);
  need("--data FILE", flags.data);
  if (output == OutputNeed::kFolder) need("--output DIR", flags.output);
  if (missing.empty()) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("{} must be given (`--help` lists all flags)", missing));
}

Status CheckContradictions(const RunFlags& flags) {
  if (!flags.steps.empty() && !flags.epochs.empty()) {
    return Status::InvalidArgument("--steps and --epochs contradict each other: give one of them");
  }
  if (!flags.eval_every.empty() && flags.eval_data.empty()) {
    return Status::InvalidArgument("--eval-every needs --eval-data FILE");
  }
  return Status::Ok();
}

Status SetTraining(const RunFlags& flags, RunOptions& options) {
  MAREA_RETURN_IF_ERROR(
      SetSmall("--sequence-length", flags.sequence_length, 1, UINT32_MAX, options.sequence_length));
  MAREA_RETURN_IF_ERROR(SetCount("--steps", flags.steps, options.steps));
  MAREA_RETURN_IF_ERROR(SetCount("--epochs", flags.epochs, options.epochs));
  MAREA_RETURN_IF_ERROR(
      SetSmall("--micro-batch", flags.micro_batch, 1, UINT32_MAX, options.micro_batch));
  if (!flags.learning_rate.empty()) {
    MAREA_ASSIGN_OR_RETURN(options.learning_rate,
                           ParseNonNegative("--learning-rate", flags.learning_rate));
  }
  if (!flags.eval_data.empty()) options.eval_data_path = flags.eval_data;
  MAREA_RETURN_IF_ERROR(SetCount("--eval-every", flags.eval_every, options.eval_every));
  if (!flags.seed.empty()) {
    MAREA_ASSIGN_OR_RETURN(options.seed, ParseCount("--seed", flags.seed, 0, UINT64_MAX));
  }
  options.deterministic = flags.deterministic;
  return Status::Ok();
}

Status SetMachine(const RunFlags& flags, RunOptions& options) {
  if (!flags.device.empty()) {
    MAREA_ASSIGN_OR_RETURN(options.device, ParseDevice("--device", flags.device));
  }
  if (!flags.optimizer_device.empty()) {
    MAREA_ASSIGN_OR_RETURN(options.optimizer_device,
                           ParseOptimizerDevice("--optimizer-device", flags.optimizer_device));
  }
  if (!flags.vram.empty()) {
    MAREA_ASSIGN_OR_RETURN(options.vram, ParseSizeLimit("--vram", flags.vram));
  }
  if (!flags.ram.empty()) {
    MAREA_ASSIGN_OR_RETURN(options.ram, ParseSizeLimit("--ram", flags.ram));
  }
  for (const std::string& text : flags.nvme) {
    MAREA_ASSIGN_OR_RETURN(NvmePath path, ParseNvmePath("--nvme", text));
    options.nvme.push_back(std::move(path));
  }
  MAREA_RETURN_IF_ERROR(SetSmall("--slots", flags.slots, 1, 2, options.slots));
  MAREA_RETURN_IF_ERROR(SetSmall("--wave", flags.wave, 1, UINT32_MAX, options.wave_size));
  MAREA_RETURN_IF_ERROR(SetSmall("--threads", flags.threads, 1, kThreadsMax, options.threads));
  MAREA_RETURN_IF_ERROR(SetSmall("--rank-timeout", flags.rank_timeout, 1, kRankSecondsMax,
                                 options.rank_timeout_seconds));
  return SetSmall("--stall-limit", flags.stall_limit, 1, kRankSecondsMax,
                  options.stall_limit_seconds);
}

}  // namespace

void AddRunFlags(FlagSet& set, RunFlags& flags) {
  set.Text("--model", flags.model, "DIR|CONFIG", "a Hugging Face folder, or a config.json");
  set.Text("--data", flags.data, "FILE|DIR", "UTF-8 text, or uint16 tokens in a .bin");
  set.Text("--config", flags.config, "DS.json", "a DeepSpeed file; flags override it");
  set.Text("--output,--output-dir", flags.output, "DIR", "where the run leaves its files");
  set.Text("--sequence-length", flags.sequence_length, "N", "tokens of a sample");
  set.Text("--steps,--max-steps", flags.steps, "N",
           "steps of the run; one pass over the data if absent");
  set.Text("--epochs", flags.epochs, "N", "passes over the data");
  set.Text("--micro-batch", flags.micro_batch, "N", "samples of a micro-batch");
  set.Text("--learning-rate", flags.learning_rate, "X", "of AdamW");
  set.Text("--eval-data", flags.eval_data, "FILE", "evaluated at the end");
  set.Text("--eval-every", flags.eval_every, "N", "evaluate every N steps too");
  set.Text("--device", flags.device, "cuda|cpu", "where blocks are computed");
  set.Text("--optimizer-device", flags.optimizer_device, "auto|cuda|cpu",
           "where AdamW runs; auto: on the GPU for what rests in VRAM");
  set.Text("--vram", flags.vram, "SIZE",
           "budget of the GPU; on the CPU, of the arena in its place");
  set.Text("--ram", flags.ram, "SIZE", "budget of the whole process");
  set.Texts("--nvme", flags.nvme, "PATH[:SIZE]", "a folder for what does not fit; may be repeated");
  set.Text("--slots", flags.slots, "1|2", "copies of what rests on NVMe");
  set.Text("--wave", flags.wave, "N", "micro-batches that go through a block together");
  set.Text("--seed", flags.seed, "N", "of initial values and data order");
  set.Switch("--deterministic", flags.deterministic, "the same bits at every run, on a GPU too");
  set.Text("--threads", flags.threads, "N", "of the CPU's kernels");
  set.Text("--rank-timeout", flags.rank_timeout, "S", "for all ranks to meet (60)");
  set.Text("--stall-limit", flags.stall_limit, "S",
           "a rank that is silent for so long is gone (30)");
  set.Switch("--json", flags.json, "JSON on stdout");
}

Result<RunOptions> ToRunOptions(const RunFlags& flags, OutputNeed output) {
  MAREA_RETURN_IF_ERROR(CheckRequired(flags, output));
  MAREA_RETURN_IF_ERROR(CheckContradictions(flags));
  RunOptions options;
  options.model_path = flags.model;
  options.data_path = flags.data;
  options.config_path = flags.config;
  options.output_path = flags.output;
  MAREA_RETURN_IF_ERROR(SetTraining(flags, options));
  MAREA_RETURN_IF_ERROR(SetMachine(flags, options));
  return options;
}

}  // namespace marea
