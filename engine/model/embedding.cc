#include "engine/model/embedding.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "io/check.h"

namespace marea {
namespace {

template <typename Element>
void ForwardLoop(const ModelConfig& config, const BatchShape& batch, const int32_t* tokens,
                 const Element* token_table, const Element* position_table, Element* output) {
  const int64_t hidden = config.hidden;
  const int64_t count = int64_t{batch.sequences} * batch.sequence_length;
  at::parallel_for(0, count, /*grain_size=*/64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Element* row = token_table + tokens[i] * hidden;
      Element* out = output + i * hidden;
      if (position_table == nullptr) {
        std::copy(row, row + hidden, out);
        continue;
      }
      const Element* position = position_table + (i % batch.sequence_length) * hidden;
      for (int64_t k = 0; k < hidden; ++k) {
        out[k] = static_cast<Element>(static_cast<float>(row[k]) + static_cast<float>(position[k]));
      }
    }
  });
}

// Threads share the columns, not the rows: each row's sum keeps the order of the batch.
template <typename Element>
void BackwardLoop(const ModelConfig& config, const BatchShape& batch, const int32_t* tokens,
                  const Element* gradient, float* token_sums, float* position_sums) {
  const int64_t hidden = config.hidden;
  const int64_t count = int64_t{batch.sequences} * batch.sequence_length;
  const int64_t padding = config.padding_token ? int64_t{*config.padding_token} : -1;
  at::parallel_for(0, hidden, /*grain_size=*/32, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      const Element* row = gradient + i * hidden;
      if (token_sums != nullptr && tokens[i] != padding) {
        float* sums = token_sums + tokens[i] * hidden;
        for (int64_t k = begin; k < end; ++k) sums[k] += static_cast<float>(row[k]);
      }
      if (position_sums != nullptr) {
        float* sums = position_sums + (i % batch.sequence_length) * hidden;
        for (int64_t k = begin; k < end; ++k) sums[k] += static_cast<float>(row[k]);
      }
    }
  });
}

void ZeroAll(float* values, uint64_t count) {
  if (values == nullptr) return;
  at::parallel_for(0, static_cast<int64_t>(count), 1 << 16, [&](int64_t begin, int64_t end) {
    std::fill(values + begin, values + end, 0.0f);
  });
}

template <typename Element>
const Element* Elements(ByteSpan bytes) {
  return reinterpret_cast<const Element*>(bytes.data());
}

}  // namespace

Status CheckTokens(const ModelConfig& config, const BatchShape& batch, const int32_t* tokens) {
  const uint64_t count = uint64_t{batch.sequences} * batch.sequence_length;
  for (uint64_t i = 0; i < count; ++i) {
    if (tokens[i] >= 0 && static_cast<uint32_t>(tokens[i]) < config.vocabulary) continue;
    return Status::InvalidArgument(fmt::format(
        "token {} at position {} of sequence {} of a micro-batch is outside the model's "
        "vocabulary of {}; use data that was made for this model",
        tokens[i], i % batch.sequence_length, i / batch.sequence_length, config.vocabulary));
  }
  return Status::Ok();
}

void EmbedForward(const ModelShape& model, const BatchShape& batch, Precision precision,
                  const int32_t* tokens, ByteSpans weights, ByteSpan output) {
  const BlockShape& block = model.blocks.front();
  MAREA_CHECK(output.size() == block.output_bytes, "an activation of another size");
  MAREA_CHECK(weights.size() == block.groups.size(), "one span of weights for each group");
  for (size_t i = 0; i < weights.size(); ++i) {
    MAREA_CHECK(
        weights[i].size() == model.groups[block.groups[i]].elements * WeightBytes(precision),
        "a group of another size");
  }
  const bool positions = weights.size() > 1;
  const auto run = [&]<typename Element>(Element) {
    ForwardLoop(model.config, batch, tokens, Elements<Element>(weights[0]),
                positions ? Elements<Element>(weights[1]) : nullptr,
                reinterpret_cast<Element*>(output.data()));
  };
  if (precision == Precision::kBf16) {
    run(c10::BFloat16());
  } else {
    run(float());
  }
}

void EmbedBackward(const ModelShape& model, const BatchShape& batch, Precision precision,
                   const int32_t* tokens, ByteSpan gradient, float* token_accumulator,
                   float* position_accumulator, Accumulate accumulate) {
  const BlockShape& block = model.blocks.front();
  MAREA_CHECK(gradient.size() == block.output_bytes, "a gradient of another size");
  if (accumulate == Accumulate::kFirst) {
    ZeroAll(token_accumulator, model.groups[block.groups[0]].elements);
    if (block.groups.size() > 1) {
      ZeroAll(position_accumulator, model.groups[block.groups[1]].elements);
    }
  }
  if (precision == Precision::kBf16) {
    BackwardLoop(model.config, batch, tokens, Elements<c10::BFloat16>(gradient), token_accumulator,
                 position_accumulator);
  } else {
    BackwardLoop(model.config, batch, tokens, Elements<float>(gradient), token_accumulator,
                 position_accumulator);
  }
}

}  // namespace marea
