// Runs a piece of a test in a child process, where limits and system call filters may be set that
// would spoil the rest.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace marea {

// `body` returns "" if all is well, else what is wrong; that text comes back, or how the child
// died. REQUIRES: the calling process has one thread.
std::string RunInChild(const std::function<std::string()>& body);

// From here on each system call of `numbers` fails with `error_number`, in this process for good.
// False if the kernel does not allow filters.
bool ForbidSystemCalls(const std::vector<long>& numbers, int error_number);

// From here on this process may lock at most `bytes`, root or not.
bool LimitLockedMemory(unsigned long bytes);

}  // namespace marea
