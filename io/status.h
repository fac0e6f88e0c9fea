// Operating errors as values.
//
// `Status` says whether an operation worked and, if not, what went wrong in one sentence that names
// the file, key or flag and the remedy. `Result<T>` is a value or such a Status. Both are
// [[nodiscard]]; io and swap never throw. A layer adds what it knows with `WithContext`; the top
// logs once. Programmer errors are not Statuses: see check.h.
//
// Thread rule: plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "io/check.h"

namespace marea {

// Which exit status a failure leads to, and what the caller may do about it.
enum class ErrorCode {
  kOk,
  kInvalidArgument,  // wrong usage, config or input; exit 2
  kDoesNotFit,       // cannot work within the stated budgets; exit 3
  kIo,           // a device or file system refused or failed; the message holds path, offset, errno
  kCorrupt,      // bytes are not what was written: checksum, magic, version
  kBusy,         // held by another process; exit 2
  kUnavailable,  // this machine or kernel does not offer it
  kCancelled,    // stopped because another operation failed or the user asked
  kFailed,       // any other failure while running; exit 1
};

const char* ErrorCodeName(ErrorCode code);

class [[nodiscard]] Status {
 public:
  // There is no default constructor: say Ok().
  static Status Ok() { return Status(ErrorCode::kOk, {}, 0); }
  static Status InvalidArgument(std::string message) {
    return Status(ErrorCode::kInvalidArgument, std::move(message), 0);
  }
  static Status DoesNotFit(std::string message) {
    return Status(ErrorCode::kDoesNotFit, std::move(message), 0);
  }
  static Status Corrupt(std::string message) {
    return Status(ErrorCode::kCorrupt, std::move(message), 0);
  }
  static Status Busy(std::string message) {
    return Status(ErrorCode::kBusy, std::move(message), 0);
  }
  static Status Unavailable(std::string message) {
    return Status(ErrorCode::kUnavailable, std::move(message), 0);
  }
  static Status Cancelled(std::string message) {
    return Status(ErrorCode::kCancelled, std::move(message), 0);
  }
  static Status Failed(std::string message) {
    return Status(ErrorCode::kFailed, std::move(message), 0);
  }
  // "<what>: <strerror(error_number)>"; `error_number` is kept for callers that decide by it.
  static Status Errno(ErrorCode code, std::string_view what, int error_number);
  static Status Io(std::string_view what, int error_number) {
    return Errno(ErrorCode::kIo, what, error_number);
  }

  bool ok() const { return code_ == ErrorCode::kOk; }
  ErrorCode code() const { return code_; }
  int error_number() const { return error_number_; }  // 0 where no system call was at fault
  const std::string& message() const { return message_; }

  // "<context>: <message>"; Ok stays Ok.
  Status WithContext(std::string_view context) const;

 private:
  Status(ErrorCode code, std::string message, int error_number)
      : code_(code), error_number_(error_number), message_(std::move(message)) {}

  ErrorCode code_;
  int error_number_;
  std::string message_;
};

// A T, or the Status that says why there is none. Implicit from both, so that `return status;` and
// `return value;` read alike.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : status_(Status::Ok()), value_(std::move(value)) {}  // NOLINT: implicit
  Result(Status status) : status_(std::move(status)) {                  // NOLINT: implicit
    MAREA_CHECK(!status_.ok(), "a Result needs a value or an error");
  }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& value() & {
    MAREA_CHECK(ok(), status_.message().c_str());
    return *value_;
  }
  const T& value() const& {
    MAREA_CHECK(ok(), status_.message().c_str());
    return *value_;
  }
  T&& value() && {
    MAREA_CHECK(ok(), status_.message().c_str());
    return *std::move(value_);
  }

 private:
  Status status_;
  std::optional<T> value_;
};

// Exit status of the process for a failure with this code (0 for kOk).
int ExitCode(ErrorCode code);

}  // namespace marea

#define MAREA_CONCAT_INNER(a, b) a##b
#define MAREA_CONCAT(a, b) MAREA_CONCAT_INNER(a, b)

// Returns the Status of `expression` to the caller unless it is Ok.
#define MAREA_RETURN_IF_ERROR(expression)        \
  do {                                           \
    ::marea::Status marea_status = (expression); \
    if (!marea_status.ok()) return marea_status; \
  } while (false)

// `target = expression` where expression is a Result; returns its Status to the caller on error.
#define MAREA_ASSIGN_OR_RETURN(target, expression) \
  MAREA_ASSIGN_OR_RETURN_INNER(MAREA_CONCAT(marea_result_, __LINE__), target, expression)
#define MAREA_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                    \
  if (!result.ok()) return result.status();                      \
  target = std::move(result).value()
