// Page-aligned memory for a test, filled with what no test expects.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "io/units.h"

namespace marea {

class TestPages {
 public:
  explicit TestPages(uint64_t bytes)
      : bytes_(RoundUp(std::max<uint64_t>(bytes, 1), kPageBytes)),
        data_(static_cast<std::byte*>(::operator new[](bytes_, std::align_val_t{kPageBytes}))) {
    std::memset(data_.get(), 0xee, bytes_);
  }
  std::byte* data() const { return data_.get(); }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  struct Deleter {
    void operator()(std::byte* bytes) const {
      ::operator delete[](bytes, std::align_val_t{kPageBytes});
    }
  };
  uint64_t bytes_;
  std::unique_ptr<std::byte[], Deleter> data_;
};

}  // namespace marea
