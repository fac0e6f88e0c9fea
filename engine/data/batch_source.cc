#include "engine/data/batch_source.h"

#include <algorithm>

#include "engine/data/data_order.h"
#include "io/check.h"
#include "io/units.h"

namespace marea {

BatchSource::BatchSource(const Dataset& dataset, const BatchOptions& options)
    : dataset_(dataset), options_(options) {
  MAREA_CHECK(options.micro_batch > 0 && options.accumulation_steps > 0, "an empty batch");
  MAREA_CHECK(options.rank < options.world_size, "a rank beyond the world");
  // The product of three 32-bit factors may overflow.
  const __uint128_t product = static_cast<__uint128_t>(options.micro_batch) *
                              options.accumulation_steps * options.world_size;
  MAREA_CHECK(product <= (uint64_t{1} << 62), "a global batch has at most 2^62 samples");
  samples_per_step_ = static_cast<uint64_t>(product);
  steps_per_pass_ = DivideRoundUp(dataset.samples(), samples_per_step_);
}

StepBatch BatchSource::Step(uint64_t step) const {
  StepBatch batch;
  batch.pass = step / steps_per_pass_;
  batch.first_position = step % steps_per_pass_ * samples_per_step_;
  batch.samples = std::min(samples_per_step_, dataset_.samples() - batch.first_position);
  const uint64_t round = uint64_t{options_.micro_batch} * options_.world_size;
  batch.micro_count = static_cast<uint32_t>(DivideRoundUp(batch.samples, round));
  batch.tokens = batch.samples * dataset_.sequence_length();
  batch.token_weight = static_cast<double>(batch.tokens);
  return batch;
}

void BatchSource::Fill(uint64_t step, uint32_t micro, std::span<int32_t> tokens,
                       std::span<int32_t> labels, std::span<float> weights) const {
  const StepBatch batch = Step(step);
  const uint64_t length = dataset_.sequence_length();
  const uint64_t values = options_.micro_batch * length;
  MAREA_CHECK(micro < batch.micro_count, "a micro-batch beyond the step");
  MAREA_CHECK(tokens.size() == values && labels.size() == values && weights.size() == values,
              "buffers of another size than a micro-batch");
  const DataOrder order(dataset_.samples(), options_.seed, batch.pass);
  const uint64_t first =
      (uint64_t{micro} * options_.world_size + options_.rank) * options_.micro_batch;
  for (uint64_t row = 0; row < options_.micro_batch; ++row) {
    const uint64_t at = row * length;
    if (first + row >= batch.samples) {
      std::fill_n(tokens.begin() + at, length, 0);
      std::fill_n(labels.begin() + at, length, 0);
      std::fill_n(weights.begin() + at, length, 0.0f);
      continue;
    }
    const uint64_t position = batch.first_position + first + row;
    const uint64_t sample =
        options_.order == SampleOrder::kShuffled ? order.At(position) : position;
    dataset_.ReadSample(sample, &tokens[at], &labels[at], &weights[at]);
  }
}

}  // namespace marea
