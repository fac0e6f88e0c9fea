// The embedding's kernels against the CPU's loops: the same bits.
#include "engine/model/embedding_cuda.h"
#include "engine/model/embedding_rows.h"
#include "tests/gpu/gpu_test.h"

namespace marea {
namespace {

constexpr uint32_t kVocabulary = 97;
constexpr int32_t kPadding = 5;

// A third of the rows hold one token, as a frequent word does; some hold the padding token.
std::vector<int32_t> Tokens(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    const uint32_t draw = random() % 12;
    token = draw < 4 ? 42 : draw == 4 ? kPadding : static_cast<int32_t>(random() % kVocabulary);
  }
  return tokens;
}

class EmbeddingKernelTest : public GpuTest {
 protected:
  template <typename Element>
  void CompareForward(const BatchShape& batch, uint32_t hidden, bool positions, size_t skip) {
    SCOPED_TRACE(testing::Message() << "forward, hidden " << hidden << ", skip " << skip
                                    << ", positions " << positions << ", " << sizeof(Element));
    const size_t count = size_t{batch.sequences} * batch.sequence_length;
    const std::vector<int32_t> tokens = Tokens(count, hidden);
    const auto token_table = As<Element>(Ordinary(size_t{kVocabulary} * hidden, 1));
    const auto position_table = As<Element>(Ordinary(size_t{batch.sequence_length} * hidden, 2));
    std::vector<Element> expected(count * hidden);
    const EmbedRows rows = {tokens.data(), static_cast<int64_t>(count), batch.sequence_length,
                            hidden};
    EmbedRowsForward(rows, 0, rows.count, token_table.data(),
                     positions ? position_table.data() : nullptr, expected.data());

    const GpuArray<int32_t> gpu_tokens(tokens);
    const GpuArray<Element> gpu_token_table(token_table, skip);
    const GpuArray<Element> gpu_position_table(position_table, skip);
    GpuArray<Element> output(std::vector<Element>(count * hidden), skip);
    const EmbedTables tables = {gpu_token_table.data(),
                                positions ? gpu_position_table.data() : nullptr};
    ASSERT_OK(EmbedForwardOnGpu(batch, hidden, PrecisionOf<Element>(), gpu_tokens.data(), tables,
                                output.data(), stream_));
    ASSERT_OK(Finish());
    EXPECT_TRUE(SameBits(output.Get(), expected));
  }

  // Two micro-batches, the first with kFirst on accumulators that hold garbage.
  template <typename Element>
  void CompareBackward(const BatchShape& batch, uint32_t hidden, int64_t padding, size_t skip) {
    SCOPED_TRACE(testing::Message() << "backward, hidden " << hidden << ", skip " << skip
                                    << ", padding " << padding << ", " << sizeof(Element));
    constexpr size_t kPaddingElements = 7;  // of a group, behind its tensor
    const size_t count = size_t{batch.sequences} * batch.sequence_length;
    std::vector<float> token_sums(size_t{kVocabulary} * hidden + kPaddingElements);
    std::vector<float> position_sums(size_t{batch.sequence_length} * hidden + kPaddingElements);
    GpuArray<float> gpu_token_sums(Ordinary(token_sums.size(), 8), skip);
    GpuArray<float> gpu_position_sums(Ordinary(position_sums.size(), 9), skip);
    const EmbedSums sums = {gpu_token_sums.data(), token_sums.size(), gpu_position_sums.data(),
                            position_sums.size()};
    TokenGrouper grouper(kVocabulary);
    for (const Accumulate mode : {Accumulate::kFirst, Accumulate::kAdd}) {
      const uint32_t seed = hidden + (mode == Accumulate::kAdd ? 1000 : 0);
      const std::vector<int32_t> tokens = Tokens(count, seed);
      const auto gradient = As<Element>(Ordinary(count * hidden, seed));
      const EmbedRows rows = {tokens.data(), static_cast<int64_t>(count), batch.sequence_length,
                              hidden};
      EmbedRowsBackward(rows, padding, 0, hidden, gradient.data(), token_sums.data(),
                        position_sums.data());

      std::vector<uint32_t> words(TokenGroupsWords(count));
      const TokenGroups groups = grouper.Group(tokens, padding, words);
      const GpuArray<uint32_t> gpu_words(words);
      const GpuArray<Element> gpu_gradient(gradient, skip);
      ASSERT_OK(EmbedBackwardOnGpu(batch, hidden, PrecisionOf<Element>(),
                                   TokenGroupsIn(gpu_words.data(), count, groups.count),
                                   gpu_gradient.data(), sums, mode, stream_));
      ASSERT_OK(Finish());
    }
    EXPECT_TRUE(SameBits(gpu_token_sums.Get(), token_sums));
    EXPECT_TRUE(SameBits(gpu_position_sums.Get(), position_sums));
  }
};

TEST_F(EmbeddingKernelTest, SmallForward) {
  for (const uint32_t hidden : {1, 3, 4, 60, 514, 1028}) {
    for (const size_t skip : {0, 1}) {
      for (const bool positions : {true, false}) {
        CompareForward<Bf16>({3, 11}, hidden, positions, skip);
        CompareForward<float>({3, 11}, hidden, positions, skip);
      }
    }
  }
}

TEST_F(EmbeddingKernelTest, SmallBackward) {
  for (const uint32_t hidden : {1, 3, 4, 60, 514, 1028}) {
    for (const size_t skip : {0, 1}) {
      for (const int64_t padding : {int64_t{-1}, int64_t{kPadding}}) {
        CompareBackward<Bf16>({3, 11}, hidden, padding, skip);
        CompareBackward<float>({3, 11}, hidden, padding, skip);
      }
    }
  }
}

TEST_F(EmbeddingKernelTest, ManyRows) {
  CompareForward<Bf16>({16, 512}, 768, true, 0);
  CompareBackward<Bf16>({16, 512}, 768, kPadding, 0);
  CompareBackward<float>({16, 512}, 768, -1, 0);
  CompareBackward<Bf16>({1, 1}, 768, -1, 0);
}

// A frozen group has no accumulator; a micro-batch of padding has no group.
TEST_F(EmbeddingKernelTest, SmallNothingToAdd) {
  const std::vector<int32_t> tokens(6, kPadding);
  std::vector<uint32_t> words(TokenGroupsWords(6));
  const TokenGroups groups = TokenGrouper(kVocabulary).Group(tokens, kPadding, words);
  ASSERT_EQ(groups.count, 0u);
  const GpuArray<float> gradient(Ordinary(6 * 4, 1));
  const std::vector<float> start = Ordinary(kVocabulary * 4, 2);
  GpuArray<float> token_sums(start);
  EmbedSums sums = {token_sums.data(), start.size(), nullptr, 0};
  ASSERT_OK(EmbedBackwardOnGpu({2, 3}, 4, Precision::kFp32, groups, gradient.data(), sums,
                               Accumulate::kAdd, stream_));
  ASSERT_OK(Finish());
  EXPECT_TRUE(SameBits(token_sums.Get(), start));
  ASSERT_OK(EmbedBackwardOnGpu({2, 3}, 4, Precision::kFp32, groups, gradient.data(), sums,
                               Accumulate::kFirst, stream_));
  ASSERT_OK(EmbedBackwardOnGpu({2, 3}, 4, Precision::kFp32, groups, gradient.data(), {},
                               Accumulate::kFirst, stream_));
  ASSERT_OK(Finish());
  EXPECT_TRUE(SameBits(token_sums.Get(), std::vector<float>(start.size())));
}

}  // namespace
}  // namespace marea
