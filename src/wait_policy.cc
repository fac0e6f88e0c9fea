#include "src/wait_policy.h"

#include <unistd.h>

#include <cstdlib>

namespace marea {

void SleepWhenWaiting(char** argv) {
  constexpr const char* kPolicy = "OMP_WAIT_POLICY";
  if (std::getenv(kPolicy) != nullptr || setenv(kPolicy, "PASSIVE", 1) != 0) return;
  execv("/proc/self/exe", argv);  // returns only on failure: then the threads spin
}

}  // namespace marea
