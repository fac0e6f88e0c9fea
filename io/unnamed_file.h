// A file that no folder lists: gone with its descriptor, also when the process is killed.
//
// Any thread; blocks for a file system call or two.
#pragma once

#include <string>

#include "io/unique_fd.h"

namespace marea {

// Opens one in `folder` for reading, writing and direct I/O: without a name where the file system
// can (O_TMPFILE), else unlinked at once. An invalid descriptor leaves its errno in
// `*error_number` (EINVAL or EOPNOTSUPP: direct I/O is refused), which is 0 otherwise.
UniqueFd OpenUnnamedFile(const std::string& folder, int* error_number);

}  // namespace marea
