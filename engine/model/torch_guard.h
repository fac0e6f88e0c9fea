// The one place where torch's exceptions become Statuses. Any thread.
#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>
#include <string>

#include "io/status.h"

namespace marea {

// What `work` returns. Where it throws: DoesNotFit for want of memory, Failed for anything else;
// the sentence begins with `what`.
template <typename Work>
Status Guarded(const std::string& what, Work work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError& error) {
    return Status::DoesNotFit(fmt::format("{}: torch ran out of memory for temporaries: {}", what,
                                          error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return Status::Failed(fmt::format("{}: {}", what, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return Status::Failed(fmt::format("{}: {}", what, error.what()));
  }
}

}  // namespace marea
