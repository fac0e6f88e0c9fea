#include "engine/model/reduce.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "engine/model/reduce_block.h"
#include "io/check.h"

namespace marea {
namespace {

// See Note [Reduce in blocks] in reduce_block.h.
template <typename Held>
double ReduceAll(std::span<const float* const> uses, uint64_t elements, Held* held) {
  const uint64_t blocks = ReduceBlocks(elements);
  std::vector<double> sums(blocks);
  at::parallel_for(0, static_cast<int64_t>(blocks), /*grain_size=*/8,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t block = begin; block < end; ++block) {
                       const uint64_t first = static_cast<uint64_t>(block) * kReduceBlockElements;
                       const uint64_t count = std::min(kReduceBlockElements, elements - first);
                       sums[static_cast<size_t>(block)] = ReduceBlock(uses, first, count, held);
                     }
                   });
  return AddBlockSums(sums);
}

}  // namespace

double ReduceUses(ByteSpans uses, ByteSpan held, Precision held_precision) {
  MAREA_CHECK(!uses.empty(), "a gradient needs at least one use");
  const uint64_t elements = uses[0].size() / sizeof(float);
  std::vector<const float*> sums;
  for (const ByteSpan& use : uses) {
    MAREA_CHECK(use.size() == elements * sizeof(float), "uses of different sizes");
    sums.push_back(reinterpret_cast<const float*>(use.data()));
  }
  MAREA_CHECK(held.size() == elements * WeightBytes(held_precision),
              "a held gradient of another size");
  if (held_precision == Precision::kBf16) {
    return ReduceAll(sums, elements, reinterpret_cast<Bf16*>(held.data()));
  }
  return ReduceAll(sums, elements, reinterpret_cast<float*>(held.data()));
}

}  // namespace marea
