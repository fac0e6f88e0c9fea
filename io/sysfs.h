// What the kernel tells in small files of /sys.
//
// Thread rule: free functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace marea {

// The first line without the spaces at its end; "" if the file is not there.
std::string ReadSysfsLine(const std::filesystem::path& file);

// The NUMA node of a device, whose folder in /sys is given; -1 where the kernel does not say.
int ReadNumaNode(const std::filesystem::path& device);

// The number at its start; 0 if the file or a number is not there.
uint64_t ReadSysfsNumber(const std::filesystem::path& file);

}  // namespace marea
