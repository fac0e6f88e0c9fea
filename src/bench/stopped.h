// What a measurement ends with when its user asked it to stop.
#pragma once

#include "io/status.h"

namespace marea {

inline Status Stopped() {
  return Status::Cancelled("stopped before the end; no file is left");
}

}  // namespace marea
