// What the kernels' tests share: a stream, memory with guards, values of all kinds.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "engine/model/bf16.h"
#include "engine/model/model_shape.h"
#include "swap/cuda_status.h"

namespace marea {

#define ASSERT_OK(expression)                                 \
  do {                                                        \
    const ::marea::Status status_of_it = (expression);        \
    ASSERT_TRUE(status_of_it.ok()) << status_of_it.message(); \
  } while (false)

// Skips its tests on a machine without a GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no GPU: "
                   << (error == cudaSuccess ? "none is installed" : cudaGetErrorString(error));
    }
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }

  void TearDown() override {
    if (stream_ == nullptr) return;
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  // Everything enqueued so far is done, and without an error.
  Status Finish() { return CudaStatus(cudaStreamSynchronize(stream_), "running the kernel"); }

  cudaStream_t stream_ = nullptr;
};

enum class Place { kDevice, kPinnedHost };

// A copy of host values where a kernel reaches them, between guard bytes that no kernel may touch.
// `skip` values are left free at the front, so that the first is off the pack alignment.
template <typename T>
class GpuArray {
 public:
  explicit GpuArray(std::span<const T> values, size_t skip = 0, Place place = Place::kDevice)
      : skip_(skip), count_(values.size()), place_(place), image_(Bytes(), kGuard) {
    void* memory = nullptr;
    const cudaError_t error = place == Place::kDevice
                                  ? cudaMalloc(&memory, Bytes())
                                  : cudaHostAlloc(&memory, Bytes(), cudaHostAllocDefault);
    EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
    memory_ = static_cast<uint8_t*>(memory);
    Set(values);
  }
  explicit GpuArray(const std::vector<T>& values, size_t skip = 0, Place place = Place::kDevice)
      : GpuArray(std::span<const T>(values), skip, place) {}
  ~GpuArray() { place_ == Place::kDevice ? cudaFree(memory_) : cudaFreeHost(memory_); }
  GpuArray(const GpuArray&) = delete;
  GpuArray& operator=(const GpuArray&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_ + Front()); }

  void Set(std::span<const T> values) {
    ASSERT_EQ(values.size(), count_);
    if (count_ > 0) std::memcpy(image_.data() + Front(), values.data(), count_ * sizeof(T));
    EXPECT_EQ(cudaMemcpy(memory_, image_.data(), Bytes(), cudaMemcpyDefault), cudaSuccess);
  }

  // The values now. REQUIRES: the kernels that write them are done.
  std::vector<T> Get() {
    std::vector<uint8_t> now(Bytes());
    EXPECT_EQ(cudaMemcpy(now.data(), memory_, Bytes(), cudaMemcpyDefault), cudaSuccess);
    const size_t end = Front() + count_ * sizeof(T);
    const auto is_guard = [](uint8_t byte) { return byte == kGuard; };
    EXPECT_TRUE(std::all_of(now.begin(), now.begin() + Front(), is_guard)) << "written before";
    EXPECT_TRUE(std::all_of(now.begin() + end, now.end(), is_guard)) << "written behind";
    std::vector<T> values(count_);
    if (count_ > 0) std::memcpy(values.data(), now.data() + Front(), count_ * sizeof(T));
    return values;
  }

 private:
  static constexpr uint8_t kGuard = 0xa5;
  static constexpr size_t kGuardBytes = 256;
  size_t Front() const { return kGuardBytes + skip_ * sizeof(T); }
  size_t Bytes() const { return Front() + count_ * sizeof(T) + kGuardBytes; }

  size_t skip_;
  size_t count_;
  Place place_;
  std::vector<uint8_t> image_;
  uint8_t* memory_ = nullptr;
};

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The precision whose elements are Element: Bf16 or float.
template <typename Element>
constexpr Precision PrecisionOf() {
  return sizeof(Element) == 2 ? Precision::kBf16 : Precision::kFp32;
}

// Ordinary values of about `scale`.
inline std::vector<float> Ordinary(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = scale * (static_cast<float>(random() % 2000001) / 1000000.0f - 1.0f);
  }
  return values;
}

// Ordinary values, and among them zeros, infinities, NaNs, subnormals, ties of bf16 and any bits.
inline std::vector<float> OfAllKinds(size_t count, uint32_t seed) {
  const uint32_t kSpecial[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                               0xffc01234, 0x7f800001, 0x00000001, 0x807fffff, 0x00800000,
                               0x7f7fffff, 0xff7fffff, 0x3f808000, 0x3f818000, 0x3f800000};
  std::vector<float> values = Ordinary(count, seed);
  std::mt19937 random(seed + 1);
  for (float& value : values) {
    const uint32_t draw = random();
    if (draw % 16 == 0) value = std::bit_cast<float>(kSpecial[random() % std::size(kSpecial)]);
    if (draw % 16 == 1) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  return values;
}

template <typename T>
std::vector<T> As(const std::vector<float>& values) {
  std::vector<T> converted;
  converted.reserve(values.size());
  for (const float value : values) converted.push_back(static_cast<T>(value));
  return converted;
}

}  // namespace marea
