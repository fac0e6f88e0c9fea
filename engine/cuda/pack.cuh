// A few neighbouring values, loaded and stored by one instruction.
//
// Kernels are templates on the width of their packs: the wide form for aligned arrays, and width 1
// for the rest, with the same arithmetic. Thread rule: device code, and pure host functions.
#pragma once

#include <cstdint>

namespace marea {

// The widest load and store of a thread.
inline constexpr int kPackBytes = 16;

template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

// REQUIRES: `from` (`to`) is aligned to the pack.
template <int kWidth, typename T>
__device__ inline Pack<T, kWidth> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

template <int kWidth, typename T>
__device__ inline void StorePack(T* to, const Pack<T, kWidth>& values) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = values;
}

// May packs of `width` values be loaded from here? A null pointer, which stands for an array that
// is not there, may.
template <typename T>
bool IsPackAligned(const T* array, int width) {
  return reinterpret_cast<uintptr_t>(array) % (sizeof(T) * static_cast<unsigned>(width)) == 0;
}

}  // namespace marea
