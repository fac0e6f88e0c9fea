// marea's own kernels on a GPU: bytes moved a second, beside what a plain copy reaches there.
//
//   gpu_kernels_bench [MILLION_ELEMENTS]      default 64
//
// A kernel's result is compared with the CPU's on a small input before it is timed: a wrong kernel
// gets no number. Times are of CUDA events around one run, after three runs that are dropped. The
// bytes are those that must move (each array once), so a second pass that a cache serves is free.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/model/loss_cuda.h"
#include "engine/model/reduce_cuda.h"
#include "engine/optim/adamw_cuda.h"
#include "engine/optim/worker_pool.h"
#include "io/check.h"
#include "swap/cuda_status.h"

namespace marea {
namespace {

constexpr int kRuns = 25;

void Must(const Status& status) {
  MAREA_CHECK(status.ok(), status.message().c_str());
}
void Must(cudaError_t error) {
  Must(CudaStatus(error, "the benchmark"));
}

enum class Place { kDevice, kPinnedHost };

// Values that repeat, where a kernel reaches them.
template <typename T>
class Array {
 public:
  Array(size_t count, Place place, T (*value)(size_t)) : place_(place), host_(count) {
    for (size_t i = 0; i < count; ++i) host_[i] = value(i);
    void* memory = nullptr;
    Must(place == Place::kDevice ? cudaMalloc(&memory, count * sizeof(T))
                                 : cudaHostAlloc(&memory, count * sizeof(T), 0));
    data_ = static_cast<T*>(memory);
    Must(cudaMemcpy(data_, host_.data(), count * sizeof(T), cudaMemcpyDefault));
  }
  ~Array() { place_ == Place::kDevice ? cudaFree(data_) : cudaFreeHost(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() { return data_; }
  std::vector<T>& host() { return host_; }
  bool SameAsHost() const {
    std::vector<T> now(host_.size());
    Must(cudaMemcpy(now.data(), data_, now.size() * sizeof(T), cudaMemcpyDefault));
    return std::memcmp(now.data(), host_.data(), now.size() * sizeof(T)) == 0;
  }

 private:
  Place place_;
  std::vector<T> host_;
  T* data_ = nullptr;
};

float Small(size_t i) {
  return static_cast<float>(i % 757) * 1e-5f - 0.003f;
}
uint16_t SmallBf16(size_t i) {
  return Bf16(Small(i)).bits;
}
float Zero(size_t) {
  return 0.0f;
}
uint16_t ZeroBf16(size_t) {
  return 0;
}

class Timer {
 public:
  Timer() {
    Must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Must(cudaEventCreate(&begin_));
    Must(cudaEventCreate(&end_));
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  cudaStream_t stream() const { return stream_; }
  void Finish() { Must(cudaStreamSynchronize(stream_)); }

  // Prints one line for `run`, which moves `bytes`.
  void Report(const std::string& name, double bytes, const std::function<void()>& run) {
    std::vector<float> times_ms;
    for (int i = 0; i < kRuns + 3; ++i) {
      float time_ms = 0;
      Must(cudaEventRecord(begin_, stream_));
      run();
      Must(cudaEventRecord(end_, stream_));
      Must(cudaEventSynchronize(end_));
      Must(cudaEventElapsedTime(&time_ms, begin_, end_));
      if (i >= 3) times_ms.push_back(time_ms);
    }
    std::sort(times_ms.begin(), times_ms.end());
    const double p50 = times_ms[times_ms.size() / 2];
    fmt::print("{:<34} {:>9.3f} ms p50 {:>9.3f} ms max {:>9.1f} GB/s\n", name, p50, times_ms.back(),
               bytes / p50 * 1e-6);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// What the split master's update touches; `states` is where the optimizer's own arrays are.
struct Shards {
  Shards(size_t elements, Place weights, Place states)
      : weight_bf16(elements, weights, SmallBf16),
        gradient_bf16(elements, weights, SmallBf16),
        master_low(elements, states, ZeroBf16),
        moment1(elements, states, Zero),
        moment2(elements, states, Zero) {}

  template <typename Of>
  AdamWChunk Chunk(Of of) {
    AdamWChunk chunk;
    chunk.weight_bf16 = of(weight_bf16);
    chunk.master_low = of(master_low);
    chunk.gradient_bf16 = of(gradient_bf16);
    chunk.moment1 = of(moment1);
    chunk.moment2 = of(moment2);
    chunk.elements = weight_bf16.host().size();
    return chunk;
  }
  AdamWChunk OnHost() {
    return Chunk([](auto& array) { return array.host().data(); });
  }
  AdamWChunk OnGpu() {
    return Chunk([](auto& array) { return array.data(); });
  }

  Array<uint16_t> weight_bf16, gradient_bf16, master_low;
  Array<float> moment1, moment2;
};

void AdamW(Timer& timer, const std::string& name, size_t elements, Place weights, Place states) {
  Array<double> scale(1, Place::kPinnedHost, [](size_t) { return 1.0; });
  {
    auto pool = WorkerPool::Create(1, "bench");
    Must(pool.status());
    Shards small(100003, weights, states);
    for (uint64_t update = 0; update < 3; ++update) {
      const AdamWConstants constants = MakeAdamWConstants({}, 1e-3, update);
      RunAdamW(*pool.value(), small.OnHost(), constants, DetectSimdLevel());
      Must(AdamWOnGpu(small.OnGpu(), scale.data(), constants, timer.stream()));
    }
    timer.Finish();
    MAREA_CHECK(small.weight_bf16.SameAsHost() && small.master_low.SameAsHost() &&
                    small.moment1.SameAsHost() && small.moment2.SameAsHost(),
                "the GPU's update differs from the CPU's");
  }
  Shards shards(elements, weights, states);
  uint64_t update = 0;
  // 14 bytes of an element are read, 12 written.
  timer.Report(name, 26.0 * static_cast<double>(elements), [&] {
    Must(AdamWOnGpu(shards.OnGpu(), scale.data(), MakeAdamWConstants({}, 1e-3, update++),
                    timer.stream()));
  });
}

void Reduce(Timer& timer, size_t elements) {
  const auto run = [&](size_t count, bool timed) {
    Array<float> first(count, Place::kDevice, Small);
    Array<float> second(count, Place::kDevice, Small);
    Array<uint16_t> held(count, Place::kDevice, ZeroBf16);
    Array<double> sums(ReduceScratchDoubles(count), Place::kDevice, [](size_t) { return 0.0; });
    Array<double> square_sum(1, Place::kPinnedHost, [](size_t) { return 0.0; });
    const float* const uses[] = {first.data(), second.data()};
    for (const size_t use_count : {1, 2}) {
      const auto reduce = [&] {
        Must(ReduceUsesOnGpu(std::span(uses).first(use_count), count, held.data(), Precision::kBf16,
                             sums.data(), square_sum.data(), timer.stream()));
      };
      if (timed) {
        timer.Report(fmt::format("reduce, {} uses to bf16", use_count),
                     static_cast<double>(count * (4 * use_count + 2)), reduce);
        continue;
      }
      reduce();
      timer.Finish();
      const float* const host[] = {first.host().data(), second.host().data()};
      std::vector<double> block_sums;
      for (uint64_t at = 0; at < count; at += kReduceBlockElements) {
        block_sums.push_back(ReduceBlock(std::span(host).first(use_count), at,
                                         std::min(kReduceBlockElements, count - at),
                                         reinterpret_cast<Bf16*>(held.host().data())));
      }
      MAREA_CHECK(held.SameAsHost() && *square_sum.data() == AddBlockSums(block_sums),
                  "the GPU's reduction differs from the CPU's");
    }
  };
  run(100003, false);
  run(elements, true);
}

void Loss(Timer& timer, uint32_t rows, uint32_t vocabulary) {
  const auto logit = [](size_t i) { return Bf16(static_cast<float>(i % 977) * 0.01f).bits; };
  Array<uint16_t> logits(size_t{rows} * vocabulary, Place::kDevice, logit);
  Array<int32_t> labels(rows, Place::kDevice, [](size_t i) { return static_cast<int32_t>(i); });
  Array<float> weights(rows, Place::kDevice, [](size_t) { return 1.0f; });
  Array<double> losses(rows, Place::kDevice, [](size_t) { return 0.0; });
  const LogitsChunk chunk = {logits.data(), Precision::kBf16, rows,         vocabulary,
                             labels.data(), weights.data(),   losses.data()};
  Must(CrossEntropyOnGpu(chunk, timer.stream()));
  timer.Finish();
  double sum = 0;
  for (uint32_t k = 0; k < vocabulary; ++k) {
    sum += std::exp(double{FloatFromBf16(logits.host()[k])});
  }
  double loss = 0;
  Must(cudaMemcpy(&loss, losses.data(), sizeof(loss), cudaMemcpyDefault));
  MAREA_CHECK(std::abs(loss - (std::log(sum) - double{FloatFromBf16(logits.host()[0])})) < 1e-5,
              "the GPU's loss is wrong");
  const double bytes = 2.0 * rows * vocabulary;
  timer.Report(fmt::format("loss, {} x {} bf16", rows, vocabulary), bytes,
               [&] { Must(CrossEntropyOnGpu(chunk, timer.stream())); });
  timer.Report(fmt::format("loss + gradient, {} x {} bf16", rows, vocabulary), 2 * bytes,
               [&] { Must(CrossEntropyGradientsOnGpu(chunk, 1e-3, timer.stream())); });
}

// The ceilings: a copy within the device, and one each way over the bus.
void Copies(Timer& timer) {
  constexpr size_t kCount = size_t{128} << 20;  // 512 MiB
  Array<float> a(kCount, Place::kDevice, Zero);
  Array<float> b(kCount, Place::kDevice, Zero);
  Array<float> host(kCount, Place::kPinnedHost, Zero);
  const auto copy = [&](float* to, const float* from) {
    Must(cudaMemcpyAsync(to, from, kCount * sizeof(float), cudaMemcpyDefault, timer.stream()));
  };
  timer.Report("copy, device to device", 2.0 * kCount * sizeof(float),
               [&] { copy(a.data(), b.data()); });
  timer.Report("copy, host to device", kCount * sizeof(float),
               [&] { copy(a.data(), host.data()); });
  timer.Report("copy, device to host", kCount * sizeof(float),
               [&] { copy(host.data(), a.data()); });
}

int Run(size_t elements) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    fmt::print("gpu_kernels_bench: there is no GPU, so there is nothing to measure\n");
    return 0;
  }
  cudaDeviceProp device;
  int driver = 0;
  Must(cudaGetDeviceProperties(&device, 0));
  Must(cudaDriverGetVersion(&driver));
  fmt::print("{}, {} processors, driver for CUDA {}.{}; {} million elements, {} runs\n",
             device.name, device.multiProcessorCount, driver / 1000, driver % 1000 / 10,
             elements >> 20, kRuns);
  Timer timer;
  Copies(timer);
  AdamW(timer, "adamw, all on the device", elements, Place::kDevice, Place::kDevice);
  AdamW(timer, "adamw, states in pinned memory", elements, Place::kDevice, Place::kPinnedHost);
  AdamW(timer, "adamw, all in pinned memory", elements, Place::kPinnedHost, Place::kPinnedHost);
  Reduce(timer, elements);
  Loss(timer, 256, 50257);
  Loss(timer, 256, 128256);
  return 0;
}

}  // namespace
}  // namespace marea

int main(int argc, char** argv) {
  size_t millions = 64;
  if (argc > 1) {
    const std::string text = argv[1];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), millions);
    if (argc > 2 || error != std::errc() || end != text.data() + text.size() || millions == 0 ||
        millions > 4096) {
      fmt::print(stderr, "usage: gpu_kernels_bench [MILLION_ELEMENTS], from 1 to 4096\n");
      return 2;
    }
  }
  return marea::Run(millions << 20);
}
