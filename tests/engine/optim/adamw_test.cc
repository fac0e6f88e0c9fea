#include "engine/optim/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "engine/optim/optim_kernels.h"
#include "engine/optim/simd_level.h"
#include "engine/optim/worker_pool.h"
#include "tests/engine/optim/adamw_test_shards.h"
#include "tests/engine/optim/test_pool.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace marea {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr WeightForm kWeightForms[] = {WeightForm::kSplit, WeightForm::kFp32};
constexpr GradientForm kGradientForms[] = {GradientForm::kBf16, GradientForm::kFp32};

AdamWConstants TestConstants(bool decoupled) {
  AdamWConfig config;
  config.weight_decay = 0.1;
  config.decoupled_weight_decay = decoupled;
  return MakeAdamWConstants(config, 0.003, 6);
}

// Every level against the reference: all lengths that a vector loop and its rest can take, from
// starts at multiples of 64, in all forms; what lies outside the range stays as it was.
TEST(AdamWTest, EveryLevelGivesTheReferencesBits) {
  const auto pool = MakePool(1);
  for (const SimdLevel level : AvailableSimdLevels()) {
    for (const WeightForm weight : kWeightForms) {
      for (const GradientForm gradient : kGradientForms) {
        for (size_t elements = 0; elements <= 200; ++elements) {
          const bool decoupled = elements % 2 == 0;
          const size_t first = elements % 3 * 64;
          AdamWShards expected(first + elements + 40);
          FillWithEverything(expected, static_cast<uint32_t>(elements + 1));
          AdamWShards actual = expected;
          const AdamWConstants constants = TestConstants(decoupled);
          ReferenceAdamW(expected.Chunk(weight, gradient, first, elements, 0.37f), constants);
          RunAdamW(*pool, actual.Chunk(weight, gradient, first, elements, 0.37f), constants, level);
          ASSERT_TRUE(actual.SameBits(expected))
              << SimdLevelName(level) << ", " << elements << " elements, split "
              << (weight == WeightForm::kSplit) << ", bf16 gradient "
              << (gradient == GradientForm::kBf16) << ", decoupled " << decoupled;
        }
      }
    }
  }
}

TEST(AdamWTest, ManyValuesOverManyUpdates) {
  const auto pool = MakePool(2);
  constexpr size_t kElements = 50021;
  for (const bool decoupled : {true, false}) {
    AdamWShards start(kElements);
    FillWithEverything(start, 77);
    AdamWShards expected = start;
    AdamWConfig config;
    config.decoupled_weight_decay = decoupled;
    for (uint64_t update = 0; update < 5; ++update) {
      ReferenceAdamW(expected.Chunk(WeightForm::kSplit, GradientForm::kBf16, 0, kElements),
                     MakeAdamWConstants(config, 0.01, update));
    }
    for (const SimdLevel level : AvailableSimdLevels()) {
      AdamWShards actual = start;
      for (uint64_t update = 0; update < 5; ++update) {
        RunAdamW(*pool, actual.Chunk(WeightForm::kSplit, GradientForm::kBf16, 0, kElements),
                 MakeAdamWConstants(config, 0.01, update), level);
      }
      EXPECT_TRUE(actual.SameBits(expected)) << SimdLevelName(level) << ", " << decoupled;
    }
  }
}

TEST(AdamWTest, ChunksAndThreadsChangeNothing) {
  constexpr size_t kElements = 3 * 16384 + 77;
  const AdamWConstants constants = TestConstants(true);
  AdamWShards start(kElements);
  FillWithEverything(start, 5);
  AdamWShards expected = start;
  ReferenceAdamW(expected.Chunk(WeightForm::kSplit, GradientForm::kBf16, 0, kElements), constants);
  for (const int threads : {1, 2, 5}) {
    const auto pool = MakePool(threads);
    for (const size_t chunk_elements : {size_t{64}, size_t{8192}, size_t{20032}, kElements}) {
      AdamWShards actual = start;
      for (size_t first = 0; first < kElements; first += chunk_elements) {
        const size_t elements = std::min(chunk_elements, kElements - first);
        RunAdamW(*pool, actual.Chunk(WeightForm::kSplit, GradientForm::kBf16, first, elements),
                 constants, DetectSimdLevel());
      }
      EXPECT_TRUE(actual.SameBits(expected)) << threads << " threads, chunks " << chunk_elements;
    }
  }
}

// Whether every float of first_bits + stride * i is stored as SplitMaster stores it (a NaN as the
// canonical one) by an update that changes nothing (step size 0), so that all there is to it is the
// kernel's own joining and splitting. `shards` and `masters` are scratch of the same length.
bool KernelKeepsFloats(const optim_internal::OptimKernels& kernels, uint64_t first_bits,
                       uint64_t stride, AdamWShards& shards, std::vector<float>& masters) {
  const size_t elements = masters.size();
  for (size_t i = 0; i < elements; ++i) {
    masters[i] = std::bit_cast<float>(static_cast<uint32_t>(first_bits + stride * i));
  }
  SplitMasters(masters.data(), elements, shards.weight_bf16.data(), shards.master_low.data());
  std::fill(shards.moment1.begin(), shards.moment1.end(), 0.0f);
  std::fill(shards.moment2.begin(), shards.moment2.end(), 0.0f);
  AdamWConstants constants = TestConstants(true);
  constants.decay_factor = 1.0f;
  constants.step_size = 0.0f;
  kernels.adamw(shards.Chunk(WeightForm::kSplit, GradientForm::kBf16, 0, elements), constants, 0,
                elements);
  uint32_t difference = 0;
  for (size_t i = 0; i < elements; ++i) {
    const SplitFloat expected = SplitMaster(Canonical(masters[i]));
    difference |= (expected.high ^ shards.weight_bf16[i]) | (expected.low ^ shards.master_low[i]);
  }
  return difference == 0;
}

TEST(AdamWTest, EveryFloatThroughTheKernels) {
  constexpr uint64_t kFloatPatterns = uint64_t{1} << 32;
  constexpr size_t kElements = 8192;  // stays in a core's own cache
  const auto pool = MakePool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  for (const SimdLevel level : AvailableSimdLevels()) {
    // The best level sees every float; the others every 257th, a stride that visits all low halves.
    const uint64_t stride = level == DetectSimdLevel() && !kSanitized ? 1 : 257;
    const uint64_t batches = kFloatPatterns / (stride * kElements);
    const optim_internal::OptimKernels& kernels = optim_internal::KernelsFor(level);
    std::atomic<uint64_t> wrong_batches{0};
    pool->ParallelFor(0, batches, 4096, [&](size_t first, size_t last) {
      AdamWShards shards(kElements);
      std::vector<float> masters(kElements);
      for (size_t batch = first; batch < last; ++batch) {
        const uint64_t first_bits = batch * stride * kElements;
        if (!KernelKeepsFloats(kernels, first_bits, stride, shards, masters)) ++wrong_batches;
      }
    });
    EXPECT_EQ(wrong_batches.load(), 0u) << SimdLevelName(level);
  }
}

// The split master is the fp32 weight: the same gradients give the same masters, to the bit.
TEST(AdamWTest, SplitMasterTrainsAsFp32) {
  const auto pool = MakePool(1);
  constexpr size_t kElements = 1000;
  AdamWShards shards(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    shards.SetWeight(i, std::sin(static_cast<float>(i)) * 0.1f);
  }
  AdamWShards fp32 = shards;
  AdamWConfig config;
  for (uint64_t update = 0; update < 20; ++update) {
    for (size_t i = 0; i < kElements; ++i) {
      const float gradient = std::cos(static_cast<float>(i + update * 31)) * 0.01f;
      shards.gradient_fp32[i] = fp32.gradient_fp32[i] = gradient;
    }
    const AdamWConstants constants = MakeAdamWConstants(config, 1e-3, update);
    RunAdamW(*pool, shards.Chunk(WeightForm::kSplit, GradientForm::kFp32, 0, kElements), constants,
             DetectSimdLevel());
    RunAdamW(*pool, fp32.Chunk(WeightForm::kFp32, GradientForm::kFp32, 0, kElements), constants,
             DetectSimdLevel());
  }
  for (size_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(shards.Master(WeightForm::kSplit, i)),
              std::bit_cast<uint32_t>(fp32.Master(WeightForm::kFp32, i)));
  }
}

// ---- parity with torch 2.11: 50 steps of torch.optim.AdamW and Adam (foreach=False, fused=False)
// on 8 weights whose gradients depend on the weights, computed by the same two roundings as here.

constexpr size_t kParityElements = 8;
using ParityValues = std::array<float, kParityElements>;

struct ParityCase {
  AdamWConfig config;
  double learning_rate;
  ParityValues after_1, after_10, after_50, moment1, moment2;
};

const ParityCase kTorchAdamW = {
    {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1},
    0.01,
    {-0.614374995f, 0.239749998f, -0.239749998f, 0.614374995f, 0.114875004f, -0.374624997f,
     0.509500027f, 0.00999999978f},
    {-0.662296832f, 0.195456401f, -0.171817034f, 0.548487782f, 0.107550718f, -0.289676905f,
     0.512735009f, 0.0858132914f},
    {-0.693866074f, -0.0759600028f, -0.208450273f, 0.29586193f, 0.197099984f, 0.026772026f,
     0.600136399f, 0.364129454f},
    {-0.0437113978f, 0.257404447f, 0.0947001502f, 0.24560602f, -0.0289299153f, -0.420741975f,
     -0.12418621f, -0.309224993f},
    {0.00472386135f, 0.0090957908f, 0.00481803948f, 0.00702750217f, 0.00485493429f, 0.00990564469f,
     0.00498221535f, 0.0127595132f}};

const ParityCase kTorchAdam = {{.beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-5,
                                .weight_decay = 0.1,
                                .decoupled_weight_decay = false},
                               0.01,
                               {-0.615000188f, 0.240001142f, -0.240000665f, 0.615000248f,
                                0.115000501f, -0.365002662f, 0.509999812f, 0.00999986567f},
                               {-0.660757065f, 0.189185917f, -0.173393741f, 0.544359267f,
                                0.103144646f, -0.280805916f, 0.507505834f, 0.0870149061f},
                               {-0.650515199f, -0.0877508894f, -0.196529239f, 0.287632763f,
                                0.183067709f, 0.0274418183f, 0.565346539f, 0.380229294f},
                               {-0.091859296f, 0.250239193f, 0.0805974603f, 0.276703864f,
                                -0.0185814761f, -0.424948782f, -0.0830806792f, -0.271748781f},
                               {0.0786824226f, 0.145593867f, 0.0856143534f, 0.156094953f,
                                0.104845919f, 0.209676966f, 0.0773888081f, 0.171683714f}};

void ExpectNear(const std::vector<float>& actual, const ParityValues& expected, const char* what) {
  for (size_t i = 0; i < kParityElements; ++i) {
    // Roundings differ in places (torch does not fuse); relative to the values' scale, with a floor
    // for those that pass through zero.
    const double tolerance = 2e-6 * std::max(0.1, std::fabs(static_cast<double>(expected[i])));
    EXPECT_NEAR(actual[i], expected[i], tolerance) << what << ", element " << i;
  }
}

void CheckParity(const ParityCase& parity) {
  const auto pool = MakePool(1);
  for (const SimdLevel level : AvailableSimdLevels()) {
    AdamWShards shards(kParityElements);
    for (size_t i = 0; i < kParityElements; ++i) {
      shards.weight_fp32[i] = (static_cast<float>(i * 29 % 11) - 5.0f) / 8.0f;
    }
    for (uint64_t t = 0; t < 50; ++t) {
      for (size_t i = 0; i < kParityElements; ++i) {
        const float pattern = (static_cast<float>((i * 37 + t * 101) % 17) - 8.0f) / 16.0f;
        const float target = (static_cast<float>(i) - 3.0f) / 4.0f;
        shards.gradient_fp32[i] = (shards.weight_fp32[i] - target) * 0.5f + pattern;
      }
      RunAdamW(*pool, shards.Chunk(WeightForm::kFp32, GradientForm::kFp32, 0, kParityElements),
               MakeAdamWConstants(parity.config, parity.learning_rate, t), level);
      if (t == 0) ExpectNear(shards.weight_fp32, parity.after_1, "weight after 1 update");
      if (t == 9) ExpectNear(shards.weight_fp32, parity.after_10, "weight after 10 updates");
    }
    ExpectNear(shards.weight_fp32, parity.after_50, "weight after 50 updates");
    ExpectNear(shards.moment1, parity.moment1, "moment1");
    ExpectNear(shards.moment2, parity.moment2, "moment2");
  }
}

TEST(AdamWTest, FollowsTorchAdamW) {
  CheckParity(kTorchAdamW);
}
TEST(AdamWTest, FollowsTorchAdamWithL2) {
  CheckParity(kTorchAdam);
}

TEST(AdamWTest, Constants) {
  AdamWConfig config;
  config.weight_decay = 0.1;
  const AdamWConstants first = MakeAdamWConstants(config, 0.01, 0);
  EXPECT_FLOAT_EQ(first.step_size, 0.1f);                             // 0.01 / (1 - 0.9)
  EXPECT_FLOAT_EQ(first.inverse_sqrt_bias_correction2, 31.6227766f);  // 1 / sqrt(0.001)
  EXPECT_FLOAT_EQ(first.decay_factor, 0.999f);
  EXPECT_EQ(first.l2_weight_decay, 0.0f);
  const AdamWConstants late = MakeAdamWConstants(config, 0.01, 1000000);
  EXPECT_EQ(late.step_size, 0.01f);
  EXPECT_EQ(late.inverse_sqrt_bias_correction2, 1.0f);
  config.bias_correction = false;
  config.decoupled_weight_decay = false;
  const AdamWConstants plain = MakeAdamWConstants(config, 0.01, 0);
  EXPECT_EQ(plain.step_size, 0.01f);
  EXPECT_EQ(plain.inverse_sqrt_bias_correction2, 1.0f);
  EXPECT_EQ(plain.decay_factor, 1.0f);
  EXPECT_EQ(plain.l2_weight_decay, 0.1f);
}

#if defined(__x86_64__)
// A caller whose thread flushes subnormals (a library compiled with -ffast-math sets that) changes
// nothing: the pool's threads have the default environment.
TEST(AdamWTest, FlushToZeroOfTheCallerChangesNothing) {
  AdamWShards shards(64);
  for (size_t i = 0; i < 64; ++i) {
    shards.SetWeight(i, 1e-39f);
    shards.moment1[i] = 1e-39f;
    shards.gradient_fp32[i] = 1e-39f;
  }
  AdamWShards expected = shards;
  const AdamWConstants constants = TestConstants(true);
  ReferenceAdamW(expected.Chunk(WeightForm::kSplit, GradientForm::kFp32, 0, 64), constants);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
  {
    const auto pool = MakePool(1);
    RunAdamW(*pool, shards.Chunk(WeightForm::kSplit, GradientForm::kFp32, 0, 64), constants,
             DetectSimdLevel());
  }
  _mm_setcsr(before);
  EXPECT_TRUE(shards.SameBits(expected));
  EXPECT_GT(expected.moment1[0], 0.0f);
}
#endif

TEST(AdamWDeathTest, RefusesAChunkWithoutAGradient) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto pool = MakePool(1);
        AdamWShards shards(64);
        AdamWChunk chunk = shards.Chunk(WeightForm::kSplit, GradientForm::kBf16, 0, 64);
        chunk.gradient_bf16 = nullptr;
        RunAdamW(*pool, chunk, TestConstants(true), SimdLevel::kScalar);
      },
      "one form of the gradient");
}

}  // namespace
}  // namespace marea
