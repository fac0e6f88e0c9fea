#include "engine/model/embedding.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/model/embedding_rows.h"
#include "io/check.h"

namespace marea {
namespace {

EmbedRows RowsOf(const ModelConfig& config, const BatchShape& batch, const int32_t* tokens) {
  return {tokens, int64_t{batch.sequences} * batch.sequence_length, batch.sequence_length,
          config.hidden};
}

template <typename Element>
void ForwardLoop(const EmbedRows& rows, const Element* token_table, const Element* position_table,
                 Element* output) {
  at::parallel_for(0, rows.count, /*grain_size=*/64, [&](int64_t begin, int64_t end) {
    EmbedRowsForward(rows, begin, end, token_table, position_table, output);
  });
}

// Threads share the columns, not the rows: each row's sum keeps the order of the batch.
template <typename Element>
void BackwardLoop(const EmbedRows& rows, int64_t padding, const Element* gradient,
                  float* token_sums, float* position_sums) {
  at::parallel_for(0, rows.hidden, /*grain_size=*/32, [&](int64_t begin, int64_t end) {
    EmbedRowsBackward(rows, padding, begin, end, gradient, token_sums, position_sums);
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
    ForwardLoop(RowsOf(model.config, batch, tokens), Elements<Element>(weights[0]),
                positions ? Elements<Element>(weights[1]) : nullptr,
                reinterpret_cast<Element*>(output.data()));
  };
  if (precision == Precision::kBf16) {
    run(Bf16());
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
  const EmbedRows rows = RowsOf(model.config, batch, tokens);
  const int64_t padding =
      model.config.padding_token ? int64_t{*model.config.padding_token} : int64_t{-1};
  if (precision == Precision::kBf16) {
    BackwardLoop(rows, padding, Elements<Bf16>(gradient), token_accumulator, position_accumulator);
  } else {
    BackwardLoop(rows, padding, Elements<float>(gradient), token_accumulator, position_accumulator);
  }
}

}  // namespace marea
