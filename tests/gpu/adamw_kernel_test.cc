// The optimizer's kernel against the CPU's: the same bits for every input.
#include <memory>

#include "engine/optim/adamw_cuda.h"
#include "engine/optim/simd_level.h"
#include "engine/optim/worker_pool.h"
#include "tests/engine/optim/adamw_test_shards.h"
#include "tests/gpu/gpu_test.h"

namespace marea {
namespace {

constexpr WeightForm kWeightForms[] = {WeightForm::kSplit, WeightForm::kFp32};
constexpr GradientForm kGradientForms[] = {GradientForm::kBf16, GradientForm::kFp32};

// AdamWShards on the GPU.
class GpuShards {
 public:
  GpuShards(const AdamWShards& from, size_t skip, Place place = Place::kDevice)
      : weight_bf16_(from.weight_bf16, skip, place),
        master_low_(from.master_low, skip, place),
        gradient_bf16_(from.gradient_bf16, skip, place),
        weight_fp32_(from.weight_fp32, skip, place),
        gradient_fp32_(from.gradient_fp32, skip, place),
        moment1_(from.moment1, skip, place),
        moment2_(from.moment2, skip, place) {}

  void Set(const AdamWShards& from) {
    weight_bf16_.Set(from.weight_bf16);
    master_low_.Set(from.master_low);
    gradient_bf16_.Set(from.gradient_bf16);
    weight_fp32_.Set(from.weight_fp32);
    gradient_fp32_.Set(from.gradient_fp32);
    moment1_.Set(from.moment1);
    moment2_.Set(from.moment2);
  }

  AdamWShards Get() {
    AdamWShards shards(0);
    shards.weight_bf16 = weight_bf16_.Get();
    shards.master_low = master_low_.Get();
    shards.gradient_bf16 = gradient_bf16_.Get();
    shards.weight_fp32 = weight_fp32_.Get();
    shards.gradient_fp32 = gradient_fp32_.Get();
    shards.moment1 = moment1_.Get();
    shards.moment2 = moment2_.Get();
    return shards;
  }

  // As AdamWShards::Chunk. The scale in the chunk is not the one to use.
  AdamWChunk Chunk(WeightForm weight, GradientForm gradient, size_t first, size_t elements) {
    AdamWChunk chunk;
    if (weight == WeightForm::kSplit) {
      chunk.weight_bf16 = weight_bf16_.data() + first;
      chunk.master_low = master_low_.data() + first;
    } else {
      chunk.weight_fp32 = weight_fp32_.data() + first;
    }
    if (gradient == GradientForm::kBf16) {
      chunk.gradient_bf16 = gradient_bf16_.data() + first;
    } else {
      chunk.gradient_fp32 = gradient_fp32_.data() + first;
    }
    chunk.moment1 = moment1_.data() + first;
    chunk.moment2 = moment2_.data() + first;
    chunk.gradient_scale = 123.0f;
    chunk.elements = elements;
    return chunk;
  }

 private:
  GpuArray<uint16_t> weight_bf16_, master_low_, gradient_bf16_;
  GpuArray<float> weight_fp32_, gradient_fp32_, moment1_, moment2_;
};

AdamWConstants TestConstants(bool decoupled, uint64_t update = 6) {
  AdamWConfig config;
  config.weight_decay = 0.1;
  config.decoupled_weight_decay = decoupled;
  return MakeAdamWConstants(config, 0.003, update);
}

class AdamWKernelTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    auto pool = WorkerPool::Create(4, "adamw");
    ASSERT_TRUE(pool.ok()) << pool.status().message();
    pool_ = std::move(pool).value();
  }

  void OnCpu(const AdamWChunk& chunk, const AdamWConstants& constants) {
    RunAdamW(*pool_, chunk, constants, DetectSimdLevel());
  }

  std::unique_ptr<WorkerPool> pool_;
};

// All lengths that packs and their rest can take, in all forms, aligned to packs and not; what lies
// outside the range stays as it was.
TEST_F(AdamWKernelTest, SmallSizesInEveryForm) {
  const GpuArray<double> scale(std::vector<double>{0.37}, 0, Place::kPinnedHost);
  for (const size_t skip : {0, 1}) {
    for (size_t elements = 0; elements <= 70; ++elements) {
      AdamWShards start(elements + 100);
      FillWithEverything(start, static_cast<uint32_t>(elements + 1));
      GpuShards gpu(start, skip);
      for (const WeightForm weight : kWeightForms) {
        for (const GradientForm gradient : kGradientForms) {
          const AdamWConstants constants = TestConstants(elements % 2 == 0);
          const size_t first = elements % 3 * 4;
          AdamWShards expected = start;
          OnCpu(expected.Chunk(weight, gradient, first, elements, 0.37f), constants);
          gpu.Set(start);
          ASSERT_OK(AdamWOnGpu(gpu.Chunk(weight, gradient, first, elements), scale.data(),
                               constants, stream_));
          ASSERT_OK(Finish());
          ASSERT_TRUE(gpu.Get().SameBits(expected))
              << elements << " elements, skip " << skip << ", split "
              << (weight == WeightForm::kSplit) << ", bf16 gradient "
              << (gradient == GradientForm::kBf16);
        }
      }
    }
  }
}

// More than one tile a block, over many updates, on the device and over the bus.
TEST_F(AdamWKernelTest, ManyValuesOverManyUpdates) {
  constexpr size_t kElements = (5 << 20) + 3;
  AdamWShards start(kElements);
  FillWithEverything(start, 77);
  const GpuArray<double> scale(std::vector<double>{0.1});  // no float: rounded
  for (const Place place : {Place::kDevice, Place::kPinnedHost}) {
    for (const WeightForm weight : kWeightForms) {
      for (const GradientForm gradient : kGradientForms) {
        const bool decoupled = gradient == GradientForm::kBf16;
        AdamWShards expected = start;
        GpuShards gpu(start, 0, place);
        for (uint64_t update = 0; update < 6; ++update) {
          const AdamWConstants constants = TestConstants(decoupled, update);
          OnCpu(expected.Chunk(weight, gradient, 0, kElements, static_cast<float>(0.1)), constants);
          ASSERT_OK(AdamWOnGpu(gpu.Chunk(weight, gradient, 0, kElements), scale.data(), constants,
                               stream_));
        }
        ASSERT_OK(Finish());
        EXPECT_TRUE(gpu.Get().SameBits(expected)) << "split " << (weight == WeightForm::kSplit);
      }
    }
  }
}

// Each of the 2^16 bf16 gradients meets each of the places where arithmetic changes its rules.
TEST_F(AdamWKernelTest, EveryBf16GradientMeetsTheEdges) {
  const float kEdges[] = {0.0f,
                          -0.0f,
                          1.0f,
                          std::numeric_limits<float>::denorm_min(),
                          -std::bit_cast<float>(0x007fffffu),
                          std::numeric_limits<float>::min(),
                          std::numeric_limits<float>::max(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(),
                          -1.5e-20f};
  constexpr size_t kGradients = 1 << 16;
  constexpr size_t kWeights = std::size(kEdges);
  AdamWShards start(kWeights * kGradients);
  GpuShards gpu(start, 0);
  const GpuArray<double> scale(std::vector<double>{0.75});
  for (const float moment1 : kEdges) {
    for (const float moment2 : kEdges) {
      for (size_t i = 0; i < start.moment1.size(); ++i) {
        start.SetWeight(i, kEdges[i / kGradients]);
        start.gradient_bf16[i] = static_cast<uint16_t>(i % kGradients);
        start.moment1[i] = moment1;
        start.moment2[i] = moment2;
      }
      const AdamWConstants constants = TestConstants(std::signbit(moment1), 2);
      AdamWShards expected = start;
      const size_t elements = start.moment1.size();
      OnCpu(expected.Chunk(WeightForm::kSplit, GradientForm::kBf16, 0, elements, 0.75f), constants);
      gpu.Set(start);
      ASSERT_OK(AdamWOnGpu(gpu.Chunk(WeightForm::kSplit, GradientForm::kBf16, 0, elements),
                           scale.data(), constants, stream_));
      ASSERT_OK(Finish());
      ASSERT_TRUE(gpu.Get().SameBits(expected)) << "moments " << moment1 << ", " << moment2;
    }
  }
}

// Joining and splitting by an update that changes nothing (step size 0), for every 257th float: the
// stride visits every low half.
TEST_F(AdamWKernelTest, FloatsAreSplitAsOnTheCpu) {
  constexpr uint64_t kStride = 257;
  constexpr size_t kElements = 1 << 20;
  AdamWShards shards(kElements);
  GpuShards gpu(shards, 0);
  const GpuArray<double> scale(std::vector<double>{1.0});
  AdamWConstants constants = TestConstants(true);
  constants.decay_factor = 1.0f;
  constants.step_size = 0.0f;
  for (uint64_t first = 0; first < (uint64_t{1} << 32); first += kStride * kElements) {
    AdamWShards expected = shards;
    for (size_t i = 0; i < kElements; ++i) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(first + kStride * i));
      shards.SetWeight(i, value);
      expected.SetWeight(i, Canonical(value));
    }
    expected.weight_fp32 = shards.weight_fp32;  // not in use
    gpu.Set(shards);
    ASSERT_OK(AdamWOnGpu(gpu.Chunk(WeightForm::kSplit, GradientForm::kBf16, 0, kElements),
                         scale.data(), constants, stream_));
    ASSERT_OK(Finish());
    ASSERT_TRUE(gpu.Get().SameBits(expected)) << "floats from bits " << first;
  }
}

// The scale is what the memory holds when the kernel runs, not when it is launched.
TEST_F(AdamWKernelTest, TheScaleIsReadOnTheStream) {
  constexpr size_t kElements = 5000;
  AdamWShards expected(kElements);
  FillWithEverything(expected, 3);
  GpuShards gpu(expected, 0);
  GpuArray<double> scale(std::vector<double>{1e9});
  const std::vector<double> later = {0.3, 1e-50, std::numeric_limits<double>::quiet_NaN()};
  const GpuArray<double> source(later);
  for (size_t i = 0; i < later.size(); ++i) {
    const AdamWConstants constants = TestConstants(true, i);
    OnCpu(expected.Chunk(WeightForm::kSplit, GradientForm::kFp32, 0, kElements,
                         static_cast<float>(later[i])),
          constants);
    ASSERT_EQ(cudaMemcpyAsync(scale.data(), source.data() + i, sizeof(double), cudaMemcpyDefault,
                              stream_),
              cudaSuccess);
    ASSERT_OK(AdamWOnGpu(gpu.Chunk(WeightForm::kSplit, GradientForm::kFp32, 0, kElements),
                         scale.data(), constants, stream_));
  }
  ASSERT_OK(Finish());
  EXPECT_TRUE(gpu.Get().SameBits(expected));
}

}  // namespace
}  // namespace marea
