#include "tests/io/allocation_count.h"

#include <cstddef>
#include <cstdlib>
#include <new>

// In a file of their own, so that no caller sees malloc behind new.
void* operator new(size_t bytes) {
  ++marea::allocation_count;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
