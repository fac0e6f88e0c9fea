// AdamW and gradient norms on the CPU: elements a second and bytes of memory traffic a second, for
// each SIMD level, precision and thread count.
//
// Arguments of a benchmark: threads, then million elements. The large size does not fit a cache, so
// its GB/s are to be set beside the machine's memory bandwidth, which StreamTriad measures in the
// same sitting with the same threads. Each level's result is compared with the scalar one before it
// is timed: a wrong kernel gets no number.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/optim/adamw.h"
#include "engine/optim/gradient_norm.h"
#include "engine/optim/simd_level.h"
#include "engine/optim/split_master.h"
#include "engine/optim/worker_pool.h"
#include "io/check.h"

namespace marea {
namespace {

enum class Form { kBf16, kFp32 };  // of weight and gradient

std::unique_ptr<WorkerPool> MakePool(int64_t threads) {
  auto pool = WorkerPool::Create(static_cast<int>(threads), "bench");
  MAREA_CHECK(pool.ok(), "the benchmark could not start its threads");
  return std::move(pool).value();
}

struct Shards {
  Shards(size_t elements, Form form) : moment1(elements, 0.0f), moment2(elements, 0.0f) {
    std::vector<float> weight(elements);
    std::vector<float> gradient(elements);
    for (size_t i = 0; i < elements; ++i) {
      weight[i] = static_cast<float>(i % 1009) * 1e-4f - 0.05f;
      gradient[i] = static_cast<float>(i % 757) * 1e-5f - 0.003f;
    }
    chunk.elements = elements;
    chunk.moment1 = moment1.data();
    chunk.moment2 = moment2.data();
    if (form == Form::kFp32) {
      weight_fp32 = std::move(weight);
      gradient_fp32 = std::move(gradient);
      chunk.weight_fp32 = weight_fp32.data();
      chunk.gradient_fp32 = gradient_fp32.data();
      return;
    }
    weight_bf16.resize(elements);
    master_low.resize(elements);
    gradient_bf16.resize(elements);
    SplitMasters(weight.data(), elements, weight_bf16.data(), master_low.data());
    for (size_t i = 0; i < elements; ++i) gradient_bf16[i] = SplitMaster(gradient[i]).high;
    chunk.weight_bf16 = weight_bf16.data();
    chunk.master_low = master_low.data();
    chunk.gradient_bf16 = gradient_bf16.data();
  }

  std::vector<float> weight_fp32, gradient_fp32, moment1, moment2;
  std::vector<uint16_t> weight_bf16, master_low, gradient_bf16;
  AdamWChunk chunk;
};

// Weight, moments and (split) master_low are read and written, the gradient is read.
constexpr int64_t BytesPerElement(Form form) {
  return form == Form::kBf16 ? 2 * (2 + 2 + 4 + 4) + 2 : 2 * (4 + 4 + 4) + 4;
}

void Check(Form form, SimdLevel level) {
  constexpr size_t kElements = 100003;
  const auto pool = MakePool(1);
  const AdamWConstants constants = MakeAdamWConstants({}, 1e-3, 3);
  Shards expected(kElements, form);
  Shards actual(kElements, form);
  RunAdamW(*pool, expected.chunk, constants, SimdLevel::kScalar);
  RunAdamW(*pool, actual.chunk, constants, level);
  MAREA_CHECK(expected.weight_bf16 == actual.weight_bf16 &&
                  expected.master_low == actual.master_low &&
                  expected.weight_fp32 == actual.weight_fp32 &&
                  expected.moment1 == actual.moment1 && expected.moment2 == actual.moment2,
              "a SIMD level differs from the scalar one");
}

void AdamW(benchmark::State& state, Form form, SimdLevel level) {
  Check(form, level);
  const auto pool = MakePool(state.range(0));
  const size_t elements = static_cast<size_t>(state.range(1)) << 20;
  Shards shards(elements, form);
  uint64_t update = 0;
  for (auto _ : state) {
    RunAdamW(*pool, shards.chunk, MakeAdamWConstants({}, 1e-3, update++), level);
  }
  const int64_t updated = static_cast<int64_t>(state.iterations() * elements);
  state.SetItemsProcessed(updated);
  state.SetBytesProcessed(updated * BytesPerElement(form));
}

void Norm(benchmark::State& state, Form form, SimdLevel level) {
  const auto pool = MakePool(state.range(0));
  const size_t elements = static_cast<size_t>(state.range(1)) << 20;
  Shards shards(elements, form);
  const auto sum_squares = [&](SimdLevel with) {
    return form == Form::kBf16
               ? SumSquares(*pool, shards.gradient_bf16.data(), elements, 0.0, with)
               : SumSquares(*pool, shards.gradient_fp32.data(), elements, 0.0, with);
  };
  MAREA_CHECK(sum_squares(level) == sum_squares(SimdLevel::kScalar),
              "a SIMD level differs from the scalar one");
  for (auto _ : state) benchmark::DoNotOptimize(sum_squares(level));
  const int64_t summed = static_cast<int64_t>(state.iterations() * elements);
  state.SetItemsProcessed(summed);
  state.SetBytesProcessed(summed * (form == Form::kBf16 ? 2 : 4));
}

// The ceiling: three streams, two read and one read and written, as wide as the compiler makes
// them.
void StreamTriad(benchmark::State& state) {
  const auto pool = MakePool(state.range(0));
  const size_t elements = static_cast<size_t>(state.range(1)) << 20;
  std::vector<float> a(elements, 1.0f), b(elements, 2.0f), c(elements, 3.0f);
  for (auto _ : state) {
    pool->ParallelFor(0, elements, 16384, [&](size_t first, size_t last) {
      for (size_t i = first; i < last; ++i) a[i] += 0.5f * b[i] + c[i];
    });
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * elements * 16));
}

void RegisterAll() {
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  std::vector<int64_t> thread_counts = {1};
  for (int64_t threads = 2; threads < cores; threads *= 2) thread_counts.push_back(threads);
  if (cores > 1) thread_counts.push_back(cores);
  constexpr int64_t kMillions = 64;  // 1.7 GB of split master shards
  const auto with_threads = [&](benchmark::internal::Benchmark* bench) {
    bench->UseRealTime()->Unit(benchmark::kMillisecond);
    for (const int64_t threads : thread_counts) bench->Args({threads, kMillions});
  };
  with_threads(benchmark::RegisterBenchmark("stream_triad", StreamTriad));
  for (const Form form : {Form::kBf16, Form::kFp32}) {
    const char* form_name = form == Form::kBf16 ? "split_bf16" : "fp32";
    for (const SimdLevel level : AvailableSimdLevels()) {
      const char* level_name = SimdLevelName(level);
      with_threads(benchmark::RegisterBenchmark(
          fmt::format("adamw/{}/{}", form_name, level_name).c_str(), AdamW, form, level));
      with_threads(benchmark::RegisterBenchmark(
          fmt::format("sum_squares/{}/{}", form_name, level_name).c_str(), Norm, form, level));
    }
  }
}

}  // namespace
}  // namespace marea

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  marea::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
