#include "engine/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace marea {

Dataset::Dataset(std::unique_ptr<TokenSource> source, uint32_t sequence_length, uint64_t samples)
    : source_(std::move(source)), sequence_length_(sequence_length), samples_(samples) {}

Result<std::unique_ptr<Dataset>> Dataset::Open(const DatasetOptions& options) {
  MAREA_CHECK(options.sequence_length > 0 && options.vocabulary > 0, "a sample needs a size");
  MAREA_ASSIGN_OR_RETURN(std::unique_ptr<TokenSource> source, TokenSource::Open(options.path));
  const uint64_t length = options.sequence_length;
  const uint64_t samples = source->tokens() == 0 ? 0 : (source->tokens() - 1) / length;
  if (samples == 0) {
    return Status::InvalidArgument(fmt::format(
        "data {} has {} bytes, but one sample of sequence length {} needs {}; use more data or a "
        "smaller --sequence-length",
        options.path, source->bytes(), length, (length + 1) * source->token_bytes()));
  }
  const uint64_t used = samples * length + 1;
  const uint64_t bad = source->FindAtLeast(options.vocabulary, used);
  if (bad < used) {
    int32_t token = 0;
    source->Read(bad, 1, &token);
    const uint64_t sample = bad == 0 ? 0 : (bad - 1) / length;  // where it is a label first
    return Status::InvalidArgument(fmt::format(
        "data {}: sample {} has token id {}, but the model's vocabulary has {} ids; use "
        "a model with a larger vocab_size or the tokenizer that belongs to the model",
        options.path, sample, token, options.vocabulary));
  }
  return std::unique_ptr<Dataset>(new Dataset(std::move(source), options.sequence_length, samples));
}

void Dataset::ReadSample(uint64_t sample, int32_t* tokens, int32_t* labels, float* weights) const {
  MAREA_CHECK(sample < samples_, "no such sample");
  const uint64_t length = sequence_length_;
  const uint64_t first = sample * length;
  source_->Read(first, length, tokens);
  std::copy(tokens + 1, tokens + length, labels);
  source_->Read(first + length, 1, labels + length - 1);
  std::fill_n(weights, length, 1.0f);
}

}  // namespace marea
