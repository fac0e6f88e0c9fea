// Torch's CPU allocator with a count of what is allocated now and at most.
//
// Installed for the whole process by the first call of Install and never removed: tensors that
// outlive a test are freed through it. Any thread may allocate.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace marea {

class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& Install();

  // From now on `peak_bytes` counts above what is allocated at this moment.
  void ResetPeak();
  uint64_t peak_bytes() const;

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* target, const void* source, std::size_t count) const override;

 private:
  explicit CountingAllocator(c10::Allocator* base) : base_(base) {}
  static void Free(void* pointer);

  c10::Allocator* base_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;
  uint64_t now_bytes_ = 0;
  uint64_t start_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
};

}  // namespace marea
