// The loss kernels against a reference in double, and against themselves to the bit.
//
// Tolerances. Loss: the sum of exponentials is in fp32, each exp within 2 units in the last place
// and a thread's share of at most some 130 terms, whose errors mostly cancel: 2e-6 of the sum, so
// of the logarithm's argument. Gradient: the same error relative to the probability, and 1e-5
// covers an exponent's argument of up to 2^6, where rounding x - max costs 2^-18; then half a unit
// of bf16.
#include "engine/model/loss_cuda.h"
#include "tests/gpu/gpu_test.h"

namespace marea {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  uint32_t rows;
  uint32_t vocabulary;
  std::vector<float> logits;
  std::vector<int32_t> labels;
  std::vector<float> weights;
};

// Every fourth row has weight 0 and, as data often does, a label outside the vocabulary.
Case MakeCase(uint32_t rows, uint32_t vocabulary, float scale) {
  Case made = {rows, vocabulary, Ordinary(size_t{rows} * vocabulary, vocabulary, scale), {}, {}};
  std::mt19937 random(rows);
  for (uint32_t r = 0; r < rows; ++r) {
    const bool ignored = r % 4 == 3;
    made.labels.push_back(ignored ? -100 : static_cast<int32_t>(random() % vocabulary));
    made.weights.push_back(ignored ? 0.0f : 0.25f * static_cast<float>(1 + r % 3));
  }
  return made;
}

struct Losses {
  std::vector<double> rows;
  std::vector<double> gradient;
};

// In double throughout, from the logits as the type holds them.
template <typename T>
Losses Reference(const Case& given, double scale) {
  Losses losses;
  for (uint32_t r = 0; r < given.rows; ++r) {
    const float* logits = given.logits.data() + size_t{r} * given.vocabulary;
    std::vector<double> wide(given.vocabulary);
    double max = -kInfinity;
    for (uint32_t k = 0; k < given.vocabulary; ++k) {
      wide[k] = static_cast<float>(static_cast<T>(logits[k]));
      max = std::max(max, wide[k]);
    }
    double sum = 0;
    for (const double value : wide) sum += std::exp(value - max);
    const double weight = given.weights[r];
    const int64_t label = given.labels[r];
    losses.rows.push_back(weight == 0 ? 0 : weight * (std::log(sum) + max - wide[label]));
    for (int64_t k = 0; k < given.vocabulary; ++k) {
      const double probability = std::exp(wide[k] - max) / sum;
      losses.gradient.push_back((probability - (k == label ? 1 : 0)) * weight * scale);
    }
  }
  return losses;
}

class LossKernelTest : public GpuTest {
 protected:
  template <typename T>
  struct OnGpu {
    explicit OnGpu(const Case& given)
        : logits(As<T>(given.logits)),
          labels(given.labels),
          weights(given.weights),
          row_losses(std::vector<double>(given.rows, -1.0)),
          chunk{logits.data(),    sizeof(T) == 2 ? Precision::kBf16 : Precision::kFp32,
                given.rows,       given.vocabulary,
                labels.data(),    weights.data(),
                row_losses.data()} {}
    GpuArray<T> logits;
    GpuArray<int32_t> labels;
    GpuArray<float> weights;
    GpuArray<double> row_losses;
    LogitsChunk chunk;
  };

  template <typename T>
  void Compare(const Case& given) {
    SCOPED_TRACE(testing::Message() << given.rows << " rows, vocabulary " << given.vocabulary
                                    << ", " << sizeof(T) << " bytes");
    constexpr double kScale = 1.0 / 37;
    const Losses expected = Reference<T>(given, kScale);
    OnGpu<T> gpu(given);
    ASSERT_OK(CrossEntropyOnGpu(gpu.chunk, stream_));
    ASSERT_OK(Finish());
    const std::vector<double> evaluated = gpu.row_losses.Get();
    EXPECT_TRUE(SameBits(gpu.logits.Get(), As<T>(given.logits))) << "evaluation wrote the logits";
    ASSERT_OK(CrossEntropyGradientsOnGpu(gpu.chunk, kScale, stream_));
    ASSERT_OK(Finish());
    EXPECT_TRUE(SameBits(gpu.row_losses.Get(), evaluated));
    const std::vector<T> gradient = gpu.logits.Get();
    for (uint32_t r = 0; r < given.rows; ++r) {
      const double tolerance = given.weights[r] * 2e-6 * std::max(1.0, expected.rows[r]);
      ASSERT_NEAR(evaluated[r], expected.rows[r], tolerance) << "row " << r;
    }
    const double relative = sizeof(T) == 2 ? 1.0 / 256 : 1e-5;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double row_scale = given.weights[i / given.vocabulary] * kScale;
      const double wanted = expected.gradient[i];
      // A label's probability - 1 keeps the absolute error of the probability; tiny ones underflow.
      const double tolerance = relative * std::abs(wanted) + 4e-7 * row_scale;
      ASSERT_NEAR(static_cast<float>(gradient[i]), wanted, tolerance)
          << "row " << i / given.vocabulary << ", token " << i % given.vocabulary;
    }
  }
};

// Rows that begin and end in the middle of a pack, and vocabularies smaller than one.
TEST_F(LossKernelTest, SmallVocabularies) {
  for (const uint32_t vocabulary : {1, 2, 3, 7, 8, 9, 15, 255, 256, 257, 1000, 4099}) {
    Compare<Bf16>(MakeCase(9, vocabulary, 5.0f));
    Compare<float>(MakeCase(9, vocabulary, 5.0f));
  }
}

TEST_F(LossKernelTest, LargeVocabularies) {
  for (const uint32_t vocabulary : {32000u, 50257u, 128256u}) {
    Compare<Bf16>(MakeCase(33, vocabulary, 12.0f));
    Compare<float>(MakeCase(33, vocabulary, 12.0f));
  }
}

TEST_F(LossKernelTest, SteepAndMaskedLogits) {
  Case given = MakeCase(8, 3001, 16000.0f);
  Compare<Bf16>(given);
  Compare<float>(given);
  given = MakeCase(8, 3001, 3.0f);
  for (size_t i = 0; i < given.logits.size(); ++i) {
    if (i % 3001 != static_cast<size_t>(given.labels[i / 3001]) && i % 5 != 0) {
      given.logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
  // A whole thread's share before the first finite one.
  std::fill(given.logits.begin(), given.logits.begin() + 2000,
            -std::numeric_limits<float>::infinity());
  given.labels[0] = 2500;
  given.logits[2500] = 1.0f;
  Compare<Bf16>(given);
  Compare<float>(given);
}

TEST_F(LossKernelTest, SmallRowsWithoutWeightAreZeroWhateverTheirLogits) {
  Case given = MakeCase(4, 77, 1.0f);
  std::fill(given.logits.begin() + 3 * 77, given.logits.end(),
            std::numeric_limits<float>::quiet_NaN());
  OnGpu<Bf16> gpu(given);
  ASSERT_OK(CrossEntropyGradientsOnGpu(gpu.chunk, 1.0, stream_));
  ASSERT_OK(Finish());
  EXPECT_EQ(gpu.row_losses.Get()[3], 0.0);
  const std::vector<Bf16> gradient = gpu.logits.Get();
  for (size_t i = 3 * 77; i < gradient.size(); ++i) ASSERT_EQ(gradient[i].bits, 0) << i;
}

TEST_F(LossKernelTest, SmallNanIsNotHidden) {
  Case given = MakeCase(3, 500, 1.0f);
  given.logits[1 * 500 + 321] = std::numeric_limits<float>::quiet_NaN();
  OnGpu<float> gpu(given);
  ASSERT_OK(CrossEntropyGradientsOnGpu(gpu.chunk, 1.0, stream_));
  ASSERT_OK(Finish());
  const std::vector<double> losses = gpu.row_losses.Get();
  EXPECT_TRUE(std::isfinite(losses[0]) && std::isnan(losses[1]) && std::isfinite(losses[2]));
  const std::vector<float> gradient = gpu.logits.Get();
  EXPECT_TRUE(std::isfinite(gradient[0]) && std::isnan(gradient[500]));
}

TEST_F(LossKernelTest, RunsAgreeToTheBit) {
  const Case given = MakeCase(128, 50257, 8.0f);
  std::vector<Bf16> gradient;
  std::vector<double> losses;
  for (int run = 0; run < 4; ++run) {
    OnGpu<Bf16> gpu(given);
    ASSERT_OK(CrossEntropyGradientsOnGpu(gpu.chunk, 0.01, stream_));
    ASSERT_OK(Finish());
    if (run == 0) {
      gradient = gpu.logits.Get();
      losses = gpu.row_losses.Get();
    }
    EXPECT_TRUE(SameBits(gpu.logits.Get(), gradient)) << "run " << run;
    EXPECT_TRUE(SameBits(gpu.row_losses.Get(), losses)) << "run " << run;
  }
}

TEST_F(LossKernelTest, SmallRowLossesAreAddedInOrder) {
  for (const size_t rows : {1, 2, 255, 1023, 1024, 1025, 2048, 5001}) {
    std::vector<double> losses;
    for (const float value : Ordinary(rows, static_cast<uint32_t>(rows))) {
      losses.push_back(std::exp(8.0 * value));
    }
    const GpuArray<double> gpu_losses(losses);
    GpuArray<double> total(std::vector<double>{1e9}, 0, Place::kPinnedHost);
    double expected = 0;
    for (const Accumulate mode : {Accumulate::kFirst, Accumulate::kAdd}) {
      for (const double loss : losses) expected += loss;
      ASSERT_OK(AddRowLossesOnGpu(gpu_losses.data(), rows, total.data(), mode, stream_));
      ASSERT_OK(Finish());
      EXPECT_EQ(total.Get()[0], expected) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace marea
