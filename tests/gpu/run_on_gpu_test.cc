// What only a run on a GPU has: torch's share of VRAM, the device's copies, and the ways in which a
// GPU can be missing, too small or taken. Also the main program of train_gpu_test, which runs the
// engine's tests of training on the GPU.
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include <future>
#include <string>
#include <vector>

#include "engine/model/torch_cuda.h"
#include "io/units.h"
#include "swap/cuda_device.h"
#include "swap/gpu_probe.h"
#include "tests/engine/train/tiny_run.h"

namespace marea {
namespace {

struct Shape {
  const char* name;
  std::string model;
  bool bf16;
  uint32_t sequence_length;
};

std::string Llama(uint32_t kv_heads, uint32_t vocabulary) {
  return R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":)" +
         std::to_string(vocabulary) +
         R"(,"hidden_size":1024,"intermediate_size":2816,"num_hidden_layers":3,)"
         R"("num_attention_heads":16,"num_key_value_heads":)" +
         std::to_string(kv_heads) +
         R"(,"max_position_embeddings":2048,"tie_word_embeddings":false})";
}

std::string Gpt2() {
  return R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":50257,)"
         R"("n_embd":768,"n_layer":3,"n_head":12,"n_positions":1024})";
}

// The formula of workspace.cc is what torch may take: what it really takes stays below, is not
// much less, and is the same in every step after the second.
TEST(RunOnGpu, TemporariesStayWithinTheFormulaAndAreFlat) {
  const Shape shapes[] = {{"grouped heads, bf16", Llama(4, 32000), true, 1024},
                          {"all heads, bf16", Llama(16, 32000), true, 1024},
                          {"grouped heads, fp32", Llama(4, 32000), false, 1024},
                          {"GPT-2, bf16", Gpt2(), true, 1024},
                          {"GPT-2, fp32", Gpt2(), false, 512}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.name);
    TinyOptions options;
    options.model = shape.model;
    options.bf16 = shape.bf16;
    options.accumulation_steps = 2;
    options.steps = 5;
    options.reoption = [&](RunOptions& run) { run.sequence_length = shape.sequence_length; };
    std::vector<TorchMemory> memory;
    options.on_step = [&](const StepMetrics&) { memory.push_back(ReadTorchMemory(0)); };
    const Result<TinyResult> run = RunTiny(options);
    ASSERT_TRUE(run.ok()) << run.status().message();
    const WorkspaceUse& workspace = run.value().summary.workspace.value();
    std::printf("%s: %s of %s\n", shape.name, FormatBytes(workspace.peak_bytes).c_str(),
                FormatBytes(workspace.predicted_bytes).c_str());
    EXPECT_LE(workspace.peak_bytes, workspace.predicted_bytes);
    EXPECT_GE(workspace.peak_bytes, workspace.predicted_bytes / 3);
    EXPECT_EQ(workspace.retry_count, 0u);
    EXPECT_EQ(memory.back().segment_count, memory[1].segment_count);
    EXPECT_EQ(memory.back().reserved_bytes, memory[1].reserved_bytes);
  }
}

// What CUDA has free now, in whole MiB.
uint64_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  return free_bytes / kMiB * kMiB;
}

TEST(RunOnGpu, ABudgetBeyondWhatIsFreeIsRefusedWithTheFigures) {
  TinyOptions options;
  options.reoption = [](RunOptions& run) { run.vram = SizeLimit{uint64_t{1} << 50, {}}; };
  const Result<TinyResult> run = RunTiny(options);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_NE(run.status().message().find("--vram 1.00 PiB"), std::string::npos)
      << run.status().message();
  EXPECT_NE(run.status().message().find("free"), std::string::npos) << run.status().message();
}

TEST(RunOnGpu, ABudgetTooSmallForTheContextIsRefusedWithTheRemedy) {
  TinyOptions options;
  options.reoption = [](RunOptions& run) { run.vram = SizeLimit{64 * kMiB, {}}; };
  const Result<TinyResult> run = RunTiny(options);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_NE(run.status().message().find("driver and libraries"), std::string::npos)
      << run.status().message();
}

TEST(RunOnGpu, MemoryThatAnotherTakesMeanwhileEndsTheRunBeforeItsFirstStep) {
  const TinyFolder folder;
  TinyOptions options;
  Result<std::unique_ptr<RunSetup>> setup = PrepareRun(TinyRunOptions(folder, options));
  ASSERT_TRUE(setup.ok()) << setup.status().message();
  Replan(*setup.value(), [](PlanSpec& spec) { spec.weight_ring_bytes += kGiB; });
  void* taken = nullptr;
  ASSERT_EQ(cudaMalloc(&taken, FreeBytes() - 512 * kMiB), cudaSuccess);
  TinyObserver observer;
  const auto run = TrainingRun::Create(*setup.value(), observer);
  EXPECT_EQ(cudaFree(taken), cudaSuccess);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_NE(run.status().message().find("another process has taken memory"), std::string::npos)
      << run.status().message();
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

// One copy outside of a step, waited for.
Status CopyNow(Device& device, std::span<std::byte> destination, std::span<const std::byte> source,
               CopyDirection direction) {
  std::promise<Status> promise;
  std::future<Status> ended = promise.get_future();
  device.Start(destination, source, direction, nullptr,
               [&promise](Status status) { promise.set_value(std::move(status)); });
  return ended.get();
}

TEST(RunOnGpu, CopiesCrossPinnedPiecesAndABadPointerOrPinIsAStatus) {
  const StepPlan plan;
  ASSERT_TRUE(ProbeGpu(0).ok());
  Result<std::unique_ptr<Device>> made = MakeCudaDevice(plan, {.vram_bytes = 64 * kMiB});
  ASSERT_TRUE(made.ok()) << made.status().message();
  Device& device = *made.value();
  ArenaOptions options;
  options.bytes = kGiB + 64 * kMiB;  // two pieces
  options.registrar = device.registrar();
  Result<PinnedArena> arena = PinnedArena::Create(options);
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  const Status again = device.registrar()->Register(arena.value().bytes());
  EXPECT_EQ(again.code(), ErrorCode::kDoesNotFit);
  EXPECT_NE(again.message().find("the driver refuses to pin"), std::string::npos)
      << again.message();
  const std::span<std::byte> across = arena.value().bytes().subspan(kGiB - 3 * kMiB, 8 * kMiB);
  for (size_t i = 0; i < across.size(); ++i) across[i] = static_cast<std::byte>(i * 7 + i / 4096);
  const std::vector<std::byte> sent(across.begin(), across.end());
  const std::span<std::byte> there = device.vram().subspan(kMiB, across.size());
  Status status = CopyNow(device, there, across, CopyDirection::kToDevice);
  EXPECT_TRUE(status.ok()) << status.message();
  std::fill(across.begin(), across.end(), std::byte{0});

  auto* nowhere = reinterpret_cast<std::byte*>(uint64_t{1} << 45);
  status = CopyNow(device, {nowhere, across.size()}, across, CopyDirection::kToDevice);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("copying to the GPU"), std::string::npos) << status.message();

  status = CopyNow(device, across, there, CopyDirection::kToHost);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(std::equal(across.begin(), across.end(), sent.begin()));
  EXPECT_TRUE(arena.value().Shutdown().ok());
  EXPECT_TRUE(device.Shutdown().ok());
}

}  // namespace
}  // namespace marea

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const marea::Result<marea::GpuFacts> gpu = marea::ProbeGpu(0);
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", gpu.status().message().c_str());
    return 0;
  }
  setenv("MAREA_TEST_DEVICE", "cuda", /*overwrite=*/1);
  return RUN_ALL_TESTS();
}
