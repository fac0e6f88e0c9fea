#include "engine/optim/gradient_norm.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/optim/optim_kernels.h"
#include "engine/optim/worker_pool.h"

namespace marea {
namespace {

// Block sums are kept for one round at a time: 512 KiB of them, for 4 Mi elements.
constexpr size_t kRoundBlocks = 65536;
constexpr size_t kPieceBlocks = 1024;

template <typename T>
double SumSquaresOf(WorkerPool& pool, const T* gradient, size_t elements, double sum_before,
                    void (*block_sums)(const T*, size_t, double*)) {
  const size_t blocks = (elements + kNormBlockElements - 1) / kNormBlockElements;
  std::vector<double> sums(std::min(blocks, kRoundBlocks));
  double sum = sum_before;
  for (size_t round = 0; round < blocks; round += kRoundBlocks) {
    const size_t round_end = std::min(blocks, round + kRoundBlocks);
    pool.ParallelFor(round, round_end, kPieceBlocks, [&](size_t first, size_t last) {
      const size_t first_element = first * kNormBlockElements;
      const size_t last_element = std::min(elements, last * kNormBlockElements);
      block_sums(gradient + first_element, last_element - first_element,
                 sums.data() + (first - round));
    });
    for (size_t b = 0; b < round_end - round; ++b) sum += sums[b];
  }
  // Which NaN an addition hands on depends on the instruction; the sign shows when it is printed.
  return sum == sum ? sum : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

double SumSquares(WorkerPool& pool, const uint16_t* gradient_bf16, size_t elements,
                  double sum_before, SimdLevel level) {
  return SumSquaresOf(pool, gradient_bf16, elements, sum_before,
                      optim_internal::KernelsFor(level).block_sums_bf16);
}

double SumSquares(WorkerPool& pool, const float* gradient_fp32, size_t elements, double sum_before,
                  SimdLevel level) {
  return SumSquaresOf(pool, gradient_fp32, elements, sum_before,
                      optim_internal::KernelsFor(level).block_sums_fp32);
}

}  // namespace marea
