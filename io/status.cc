#include "io/status.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace marea {

void CheckFailed(const char* file, int line, const char* condition, const char* message) {
  std::fprintf(stderr, "marea: internal error at %s:%d: %s [%s]\n", file, line, message, condition);
  std::fflush(stderr);
  std::abort();
}

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kDoesNotFit:
      return "does not fit";
    case ErrorCode::kIo:
      return "I/O error";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kFailed:
      return "failed";
  }
  return "unknown";
}

int ExitCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return 0;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kBusy:  // a path that another run holds is a wrong input
      return 2;
    case ErrorCode::kDoesNotFit:
      return 3;
    default:
      return 1;
  }
}

Status Status::Errno(ErrorCode code, std::string_view what, int error_number) {
  std::string message(what);
  message += ": ";
  message += std::strerror(error_number);
  return Status(code, std::move(message), error_number);
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  std::string message(context);
  message += ": ";
  message += message_;
  return Status(code_, std::move(message), error_number_);
}

}  // namespace marea
