// A sum of doubles whose order is that of the array, by one block.
//
// One thread adds; the others bring the next tile into shared memory meanwhile, so that the chain
// of additions waits for no memory.
#pragma once

#include <cstdint>

namespace marea {

inline constexpr unsigned kOrderedSumThreads = 256;

// ((sum + values[0]) + values[1]) + ..., in thread 0; what other threads return is not the sum.
// REQUIRES: every thread of a block of kOrderedSumThreads calls it, at most once in a kernel.
__device__ inline double OrderedSum(const double* values, uint64_t count, double sum) {
  constexpr uint64_t kTile = 1024;
  __shared__ double tiles[2][kTile];
  const auto load = [&](uint64_t tile, unsigned first_thread) {
    for (uint64_t k = threadIdx.x - first_thread; k < kTile;
         k += kOrderedSumThreads - first_thread) {
      const uint64_t i = tile * kTile + k;
      if (i < count) tiles[tile % 2][k] = values[i];
    }
  };
  const uint64_t tile_count = (count + kTile - 1) / kTile;
  load(0, 0);
  for (uint64_t tile = 0; tile < tile_count; ++tile) {
    __syncthreads();  // this tile is there, and the other one has been added
    if (threadIdx.x >= warpSize) {
      load(tile + 1, warpSize);
    } else if (threadIdx.x == 0) {
      const uint64_t rest = count - tile * kTile;
      const unsigned here = static_cast<unsigned>(rest < kTile ? rest : kTile);
#pragma unroll 16
      for (unsigned k = 0; k < here; ++k) sum = __dadd_rn(sum, tiles[tile % 2][k]);
    }
  }
  return sum;
}

}  // namespace marea
