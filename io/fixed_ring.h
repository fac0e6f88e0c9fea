// A first-in first-out queue of fixed capacity, allocated once.
//
// Overflow is a programmer error: the owner bounds what it pushes. Not thread-safe.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "io/check.h"

namespace marea {

template <typename T>
class FixedRing {
 public:
  explicit FixedRing(size_t capacity) : items_(capacity) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  size_t capacity() const { return items_.size(); }

  // REQUIRES: size() < capacity().
  void Push(T item) {
    MAREA_CHECK(size_ < items_.size(), "a fixed ring overflows");
    items_[(head_ + size_) % items_.size()] = std::move(item);
    ++size_;
  }

  // REQUIRES: !empty().
  T& front() {
    MAREA_CHECK(size_ > 0, "a fixed ring is empty");
    return items_[head_];
  }
  T Pop() {
    T item = std::move(front());
    head_ = (head_ + 1) % items_.size();
    --size_;
    return item;
  }
  void Clear() { head_ = size_ = 0; }

 private:
  std::vector<T> items_;
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace marea
