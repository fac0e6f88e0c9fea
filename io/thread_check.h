// Catches a second thread where one thread drives one object.
//
// The first call of Check decides which thread that is; a call from another stops the process.
#pragma once

#include <thread>

#include "io/check.h"

namespace marea {

class ThreadCheck {
 public:
  void Check() {
    const std::thread::id self = std::this_thread::get_id();
    if (owner_ == std::thread::id()) owner_ = self;
    MAREA_CHECK(owner_ == self, "a device is driven by a second thread");
  }

 private:
  std::thread::id owner_;
};

}  // namespace marea
