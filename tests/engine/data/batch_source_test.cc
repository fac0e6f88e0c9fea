#include "engine/data/batch_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/data_order.h"
#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

constexpr uint32_t kLength = 4;

// Sample j starts with token j + 1, so that rows name their samples and padding (0) names none.
std::unique_ptr<Dataset> MakeDataset(const TempFolder& folder, uint32_t samples) {
  std::vector<uint16_t> tokens(samples * kLength + 1, 0);
  for (uint32_t j = 0; j < samples; ++j) {
    for (uint32_t i = 0; i < kLength; ++i) tokens[j * kLength + i] = static_cast<uint16_t>(j + 1);
  }
  const std::string path = folder.Write(
      "data.bin", std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2));
  return Dataset::Open({path, kLength, 65536}).value();
}

struct Micro {
  std::vector<int32_t> tokens, labels;
  std::vector<float> weights;
};

Micro Fill(const BatchSource& source, uint32_t micro_batch, uint64_t step, uint32_t micro) {
  const size_t values = size_t{micro_batch} * kLength;
  // Poisoned, so that what is not written shows.
  Micro batch{std::vector<int32_t>(values, -9), std::vector<int32_t>(values, -9),
              std::vector<float>(values, -9.0f)};
  source.Fill(step, micro, batch.tokens, batch.labels, batch.weights);
  return batch;
}

// 63 sequences, micro-batch 1, accumulation 8, two epochs: 16 steps, the last of an epoch with 7.
TEST(BatchSource, FlushRuleOfTheToyData) {
  const TempFolder folder;
  const std::unique_ptr<Dataset> data = MakeDataset(folder, 63);
  const BatchSource source(*data, {.micro_batch = 1, .accumulation_steps = 8});
  EXPECT_EQ(source.steps_per_pass() * 2, 16u);
  for (uint64_t step = 0; step < 16; ++step) {
    const StepBatch batch = source.Step(step);
    EXPECT_EQ(batch.pass, step / 8);
    EXPECT_EQ(batch.micro_count, step % 8 == 7 ? 7u : 8u) << step;
    EXPECT_EQ(batch.token_weight, batch.micro_count * double{kLength});
  }
}

// Over ranks, micro-batches and accumulation: every sample of a pass exactly once, all weights add
// up to the step's divisor, and the order is that of the permutation.
TEST(BatchSource, EverySampleCountsExactlyOnceInEveryPass) {
  for (const uint32_t samples : {1, 2, 7, 63, 64, 65}) {
    const TempFolder folder;
    const std::unique_ptr<Dataset> data = MakeDataset(folder, samples);
    for (const uint32_t micro_batch : {1, 2, 3}) {
      for (const uint32_t accumulation : {1, 2, 5}) {
        for (const uint32_t world : {1, 2, 4}) {
          BatchOptions options{.micro_batch = micro_batch,
                               .accumulation_steps = accumulation,
                               .world_size = world,
                               .seed = 11};
          const BatchSource any(*data, options);
          const uint64_t global = uint64_t{micro_batch} * accumulation * world;
          ASSERT_EQ(any.steps_per_pass(), (samples + global - 1) / global);
          for (uint64_t step = 0; step < 2 * any.steps_per_pass(); ++step) {
            const StepBatch batch = any.Step(step);
            const DataOrder order(samples, options.seed, batch.pass);
            ASSERT_GE(batch.micro_count, 1u);
            ASSERT_LE(batch.micro_count, accumulation);
            double weight = 0;
            std::vector<bool> seen(global, false);
            for (uint32_t rank = 0; rank < world; ++rank) {
              options.rank = rank;
              const BatchSource source(*data, options);
              ASSERT_EQ(source.Step(step).micro_count, batch.micro_count);
              for (uint32_t micro = 0; micro < batch.micro_count; ++micro) {
                const Micro rows = Fill(source, micro_batch, step, micro);
                for (uint32_t row = 0; row < micro_batch; ++row) {
                  const uint64_t j = (uint64_t{micro} * world + rank) * micro_batch + row;
                  const int32_t first = rows.tokens[row * kLength];
                  for (uint32_t i = 0; i < kLength; ++i) weight += rows.weights[row * kLength + i];
                  if (j >= batch.samples) {
                    ASSERT_EQ(first, 0);
                    ASSERT_EQ(rows.labels[row * kLength], 0);
                    ASSERT_EQ(rows.weights[row * kLength], 0.0f);
                    continue;
                  }
                  const uint64_t position = step % any.steps_per_pass() * global + j;
                  ASSERT_EQ(first, static_cast<int32_t>(order.At(position)) + 1);
                  ASSERT_FALSE(seen[j]);
                  seen[j] = true;
                }
              }
            }
            ASSERT_EQ(weight, batch.token_weight);
            ASSERT_EQ(static_cast<uint64_t>(std::count(seen.begin(), seen.end(), true)),
                      batch.samples);
          }
        }
      }
    }
  }
}

TEST(BatchSource, RandomAccessAndSeeds) {
  const TempFolder folder;
  const std::unique_ptr<Dataset> data = MakeDataset(folder, 200);
  const BatchOptions options{.micro_batch = 2, .accumulation_steps = 3, .seed = 1};
  const BatchSource source(*data, options);
  const Micro late = Fill(source, 2, 50, 1);
  Fill(source, 2, 3, 0);
  EXPECT_EQ(Fill(source, 2, 50, 1).tokens, late.tokens);
  BatchOptions other = options;
  other.seed = 2;
  EXPECT_NE(Fill(BatchSource(*data, other), 2, 50, 1).tokens, late.tokens);
  // Another pass, another order.
  EXPECT_NE(Fill(source, 2, source.steps_per_pass(), 0).tokens, Fill(source, 2, 0, 0).tokens);
  BatchOptions sequential = options;
  sequential.order = SampleOrder::kSequential;
  const Micro first = Fill(BatchSource(*data, sequential), 2, 0, 1);
  EXPECT_EQ(first.tokens[0], 3);
  EXPECT_EQ(first.tokens[kLength], 4);
}

// How the global batch is split into ranks, micro-batches and rounds never changes its samples.
TEST(BatchSource, GlobalBatchIsTheSameHoweverItIsSplit) {
  const TempFolder folder;
  const std::unique_ptr<Dataset> data = MakeDataset(folder, 100);
  const auto samples_of = [&](uint32_t micro_batch, uint32_t accumulation, uint32_t world,
                              uint64_t step) {
    std::vector<int32_t> samples;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const BatchSource source(*data, {.micro_batch = micro_batch,
                                       .accumulation_steps = accumulation,
                                       .world_size = world,
                                       .rank = rank});
      for (uint32_t micro = 0; micro < source.Step(step).micro_count; ++micro) {
        const Micro rows = Fill(source, micro_batch, step, micro);
        for (uint32_t row = 0; row < micro_batch; ++row) {
          if (rows.weights[row * kLength] > 0) samples.push_back(rows.tokens[row * kLength]);
        }
      }
    }
    std::sort(samples.begin(), samples.end());
    return samples;
  };
  for (uint64_t step = 0; step < 18; ++step) {
    const std::vector<int32_t> reference = samples_of(12, 1, 1, step);
    EXPECT_EQ(samples_of(1, 12, 1, step), reference);
    EXPECT_EQ(samples_of(2, 3, 2, step), reference);
    EXPECT_EQ(samples_of(3, 1, 4, step), reference);
  }
}

}  // namespace
}  // namespace marea
