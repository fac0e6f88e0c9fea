#include "tests/engine/model/counting_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

namespace marea {
namespace {

CountingAllocator* installed = nullptr;

}  // namespace

CountingAllocator& CountingAllocator::Install() {
  if (installed == nullptr) {
    installed = new CountingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(installed, /*priority=*/255);
  }
  return *installed;
}

void CountingAllocator::ResetPeak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  start_bytes_ = peak_bytes_ = now_bytes_;
}

uint64_t CountingAllocator::peak_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return peak_bytes_ - start_bytes_;
}

c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  void* pointer = base_->raw_allocate(bytes);
  if (pointer != nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sizes_[pointer] = bytes;
    now_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, now_bytes_);
  }
  return {pointer, pointer, &Free, c10::Device(c10::kCPU)};
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const {
  return &Free;
}

void CountingAllocator::copy_data(void* target, const void* source, std::size_t count) const {
  std::memcpy(target, source, count);
}

void CountingAllocator::Free(void* pointer) {
  if (pointer == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(installed->mutex_);
    const auto found = installed->sizes_.find(pointer);
    installed->now_bytes_ -= found->second;
    installed->sizes_.erase(found);
  }
  installed->base_->raw_deallocate(pointer);
}

}  // namespace marea
