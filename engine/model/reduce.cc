#include "engine/model/reduce.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <vector>

#include "io/check.h"

namespace marea {
namespace {

constexpr uint64_t kLanes = 8;

// Adds, rounds and squares one block. Eight running sums keep the additions independent; their
// order is fixed by the element's number within its block.
template <typename Held>
double ReduceBlock(ByteSpans uses, uint64_t first, uint64_t count, Held* held) {
  std::array<float, kReduceBlockElements> sum;
  const auto use = [&](size_t i) { return reinterpret_cast<const float*>(uses[i].data()) + first; };
  std::copy(use(0), use(0) + count, sum.begin());
  for (size_t i = 1; i < uses.size(); ++i) {
    const float* values = use(i);
    for (uint64_t k = 0; k < count; ++k) sum[k] += values[k];
  }
  for (uint64_t k = 0; k < count; ++k) {
    const Held rounded = static_cast<Held>(sum[k]);
    held[first + k] = rounded;
    sum[k] = static_cast<float>(rounded);
  }
  std::fill(sum.begin() + count, sum.end(), 0.0f);
  std::array<double, kLanes> squares{};
  for (uint64_t k = 0; k < kReduceBlockElements; k += kLanes) {
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      const double value = sum[k + lane];
      squares[lane] += value * value;
    }
  }
  return ((squares[0] + squares[1]) + (squares[2] + squares[3])) +
         ((squares[4] + squares[5]) + (squares[6] + squares[7]));
}

template <typename Held>
double ReduceAll(ByteSpans uses, uint64_t elements, Held* held) {
  const uint64_t blocks = (elements + kReduceBlockElements - 1) / kReduceBlockElements;
  std::vector<double> sums(blocks);
  at::parallel_for(0, static_cast<int64_t>(blocks), /*grain_size=*/8,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t block = begin; block < end; ++block) {
                       const uint64_t first = static_cast<uint64_t>(block) * kReduceBlockElements;
                       const uint64_t count = std::min(kReduceBlockElements, elements - first);
                       sums[static_cast<size_t>(block)] = ReduceBlock(uses, first, count, held);
                     }
                   });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

double ReduceUses(ByteSpans uses, ByteSpan held, Precision held_precision) {
  MAREA_CHECK(!uses.empty(), "a gradient needs at least one use");
  const uint64_t elements = uses[0].size() / sizeof(float);
  for (const ByteSpan& use : uses) {
    MAREA_CHECK(use.size() == elements * sizeof(float), "uses of different sizes");
  }
  MAREA_CHECK(held.size() == elements * WeightBytes(held_precision),
              "a held gradient of another size");
  if (held_precision == Precision::kBf16) {
    return ReduceAll(uses, elements, reinterpret_cast<c10::BFloat16*>(held.data()));
  }
  return ReduceAll(uses, elements, reinterpret_cast<float*>(held.data()));
}

}  // namespace marea
