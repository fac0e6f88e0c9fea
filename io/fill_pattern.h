// Bytes to write where their values do not matter but their kind does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace marea {

// Fills with bytes that neither compress nor look like a hole: drives and hypervisors shorten
// zeros. The same every time. REQUIRES: bytes is a multiple of 8.
void FillPattern(std::byte* data, uint64_t bytes);

}  // namespace marea
