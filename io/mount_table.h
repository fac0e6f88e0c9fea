// What is mounted where, as this process sees it (/proc/self/mountinfo).
//
// Read afresh at each call. Any thread.
#pragma once

#include <string>
#include <vector>

namespace marea {

struct Mount {
  std::string root;           // the folder of the file system that is mounted: "/"
  std::string point;          // where: "/mnt/nvme0"
  std::string options;        // of the mount: "rw,relatime"
  std::string type;           // "ext4"
  std::string super_options;  // of the file system: "rw,discard"
};

// In the order in which they were mounted: the last one that covers a path is the one that is seen.
// Empty without /proc; lines that are no mount are passed over. `proc` is the folder: tests pass
// another.
std::vector<Mount> ReadMounts(const std::string& proc);

}  // namespace marea
