#include "engine/report/version.h"

namespace marea {

const char* Version() {
  return MAREA_VERSION;
}

}  // namespace marea
