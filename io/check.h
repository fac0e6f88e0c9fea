// Programmer errors stop the process, in release builds too.
//
// MAREA_CHECK(condition, message) prints file, line, condition and message to stderr and aborts.
// Never put work inside a check, and never let one stand in for handling a device's answer: that is
// what Status is for.
#pragma once

namespace marea {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const char* message);

}  // namespace marea

#define MAREA_CHECK(condition, message)                              \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::marea::CheckFailed(__FILE__, __LINE__, #condition, message); \
  } while (false)
