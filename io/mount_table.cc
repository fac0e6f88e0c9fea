#include "io/mount_table.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace marea {
namespace {

// "\040" for a space and so on, as mountinfo writes them.
std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 3 < text.size() &&
                        std::all_of(text.begin() + static_cast<ptrdiff_t>(i) + 1,
                                    text.begin() + static_cast<ptrdiff_t>(i) + 4,
                                    [](char c) { return c >= '0' && c <= '7'; });
    if (!escape) {
      out += text[i];
      continue;
    }
    out +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += 3;
  }
  return out;
}

}  // namespace

std::vector<Mount> ReadMounts(const std::string& proc) {
  std::vector<Mount> mounts;
  std::ifstream in(proc + "/self/mountinfo");
  std::string line;
  // "36 35 98:0 /root /mount options [fields] - type source super"
  while (std::getline(in, line)) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash));
    std::istringstream right(line.substr(dash + 3));
    Mount mount;
    std::string skip;
    left >> skip >> skip >> skip >> mount.root >> mount.point >> mount.options;
    right >> mount.type >> skip >> mount.super_options;
    if (mount.point.empty() || mount.type.empty()) continue;
    mount.root = Unescape(mount.root);
    mount.point = Unescape(mount.point);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

}  // namespace marea
