#include "io/sysfs.h"

#include <fstream>

namespace marea {

std::string ReadSysfsLine(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

int ReadNumaNode(const std::filesystem::path& device) {
  std::ifstream in(device / "numa_node");
  int node = -1;
  return in >> node ? node : -1;
}

uint64_t ReadSysfsNumber(const std::filesystem::path& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  in >> value;
  return in ? value : 0;
}

}  // namespace marea
