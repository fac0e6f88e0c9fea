// Tiny training runs for tests: a folder with a model, text and a DeepSpeed file, and a way to run
// them with any placement.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "engine/plan/plan_compiler.h"
#include "engine/train/run_setup.h"
#include "engine/train/training_run.h"
#include "swap/plan_check.h"

namespace marea {

inline void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::string TinyGpt2(bool tied) {
  return std::string(
             R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":257,)") +
         R"("n_embd":64,"n_layer":3,"n_head":4,"n_positions":128,"tie_word_embeddings":)" +
         (tied ? "true}" : "false}");
}

inline std::string TinyLlama(bool tied) {
  return std::string(R"({"model_type":"llama","architectures":["LlamaForCausalLM"],)") +
         R"("vocab_size":256,"hidden_size":64,"intermediate_size":176,"num_hidden_layers":3,)" +
         R"("num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":128,)" +
         R"("rope_theta":10000.0,"rms_norm_eps":1e-5,"tie_word_embeddings":)" +
         (tied ? "true}" : "false}");
}

// Ten kilobytes of text that is neither constant nor random.
inline std::string TinyText() {
  std::string text;
  for (int i = 0; text.size() < 10000; ++i) {
    text +=
        "line " + std::to_string(i * i % 977) + " of the tide, and " + std::to_string(i) + ";\n";
  }
  return text;
}

struct TinyOptions {
  std::string model = TinyGpt2(true);
  bool bf16 = true;
  double clipping = 1.0;
  uint32_t accumulation_steps = 4;
  uint64_t steps = 4;
  uint32_t slots = 2;
  uint32_t threads = 2;
  std::string scheduler = {};  // a whole section, or nothing
  // Changes the spec before it is compiled anew; nothing: the planner's own plan is used.
  std::function<void(PlanSpec&)> respec = {};
  std::function<void(RunOptions&)> reoption = {};
  std::function<void(RunSetup&)> resetup = {};
  std::function<void(const StepMetrics&)> on_step = {};
};

struct TinyResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::string weights;  // model.safetensors
  RunSummary summary;
  std::vector<StepMetrics> lines;
  std::vector<std::string> notices;
};

class TinyObserver final : public TrainingObserver {
 public:
  void OnPhase(const std::string&, uint64_t, uint64_t) override {}
  void OnStep(const StepMetrics& metrics) override {
    lines.push_back(metrics);
    if (on_step) on_step(metrics);
  }
  void OnWarning(const std::string& sentence) override { warnings.push_back(sentence); }
  void OnNotice(const std::string& sentence) override { notices.push_back(sentence); }
  std::vector<StepMetrics> lines;
  std::vector<std::string> warnings;
  std::vector<std::string> notices;
  std::function<void(const StepMetrics&)> on_step;
};

// A folder under the build folder (a real disk), removed at the end.
class TinyFolder {
 public:
  TinyFolder() {
    static int count = 0;
    path_ = std::filesystem::current_path() /
            ("tiny-run-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TinyFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// tests/gpu/run sets it: the same tests, computed on a GPU.
inline bool TestsRunOnGpu() {
  const char* device = std::getenv("MAREA_TEST_DEVICE");
  return device != nullptr && std::string(device) == "cuda";
}

// Rings at their least, times `stretch`.
inline void SetRings(PlanSpec& spec, uint64_t stretch) {
  const RingMinimum least = MinimumRings(spec);
  spec.weight_ring_bytes = least.weight_bytes * stretch;
  spec.accumulator_ring_bytes = least.accumulator_bytes * stretch;
  spec.staging_ring_bytes = least.staging_bytes * stretch;
  spec.activation_ring_bytes = least.activation_bytes * stretch;
  spec.optimizer_ring_bytes = least.optimizer_bytes * stretch;
}

// Every shard that has a home of its own.
inline void Everywhere(PlanSpec& spec, Tier tier) {
  for (auto& homes : spec.placement.homes) homes.fill(tier);
}

inline void OnNvme(PlanSpec& spec) {
  Everywhere(spec, Tier::kNvme);
  spec.chunk_elements = 4 * kGroupAlignElements;
  SetRings(spec, 2);
}

inline void Replan(RunSetup& setup, const std::function<void(PlanSpec&)>& respec) {
  PlannedRun& planned = setup.planned;
  respec(planned.spec);
  planned.plan = CompileStepPlan(planned.spec).value();
  const Status status = CheckPlan(planned.plan, planned.spec.micro_count);
  ASSERT_TRUE(status.ok()) << status.message();
  planned.chunks = MakeChunkTable(planned.plan);
}

inline RunOptions TinyRunOptions(const TinyFolder& folder, const TinyOptions& tiny) {
  WriteFile(folder / "config.json", tiny.model);
  WriteFile(folder / "data.txt", TinyText());
  std::string config = R"({"train_micro_batch_size_per_gpu":2,"gradient_accumulation_steps":)" +
                       std::to_string(tiny.accumulation_steps) + R"(,"bf16":{"enabled":)" +
                       (tiny.bf16 ? "true" : "false") + R"(},"gradient_clipping":)" +
                       std::to_string(tiny.clipping) + R"(,"zero_optimization":{"stage":3},)" +
                       R"("optimizer":{"type":"AdamW","params":{"lr":0.001,"weight_decay":0.1}})";
  if (!tiny.scheduler.empty()) config += ",\"scheduler\":" + tiny.scheduler;
  WriteFile(folder / "ds.json", config + "}");
  RunOptions options;
  options.model_path = folder / "config.json";
  options.data_path = folder / "data.txt";
  options.config_path = folder / "ds.json";
  options.output_path = folder / "out";
  options.sequence_length = 32;
  options.steps = tiny.steps;
  options.slots = tiny.slots;
  options.threads = tiny.threads;
  options.nvme = {{folder / ".", {}}};
  options.device = TestsRunOnGpu() ? DeviceChoice::kCuda : DeviceChoice::kCpu;
  options.deterministic = true;
  if (tiny.reoption) tiny.reoption(options);
  return options;
}

inline Result<TinyResult> RunTinyIn(const TinyFolder& folder, const TinyOptions& tiny) {
  MAREA_ASSIGN_OR_RETURN(std::unique_ptr<RunSetup> setup, PrepareRun(TinyRunOptions(folder, tiny)));
  if (tiny.resetup) tiny.resetup(*setup);
  if (tiny.respec) Replan(*setup, tiny.respec);
  TinyObserver observer;
  observer.on_step = tiny.on_step;
  MAREA_ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run, TrainingRun::Create(*setup, observer));
  TinyResult result;
  MAREA_ASSIGN_OR_RETURN(result.summary, run->Run());
  for (const StepMetrics& line : observer.lines) {
    result.losses.push_back(line.loss);
    result.norms.push_back(line.grad_norm);
  }
  result.lines = observer.lines;
  result.notices = observer.notices;
  result.weights = ReadFile(folder / "out/checkpoint/model.safetensors");
  return result;
}

inline Result<TinyResult> RunTiny(const TinyOptions& tiny) {
  const TinyFolder folder;
  return RunTinyIn(folder, tiny);
}

}  // namespace marea
