#include "engine/train/output_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace marea {

Result<OutputFolder> OutputFolder::Make(const std::string& path) {
  OutputFolder folder;
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (std::filesystem::path at = std::filesystem::absolute(path).lexically_normal();
       !at.empty() && !std::filesystem::exists(at, error) && at != at.parent_path();
       at = at.parent_path()) {
    if (at.has_filename()) missing.push_back(at);
  }
  std::reverse(missing.begin(), missing.end());
  for (const std::filesystem::path& each : missing) {
    if (std::filesystem::create_directory(each, error)) folder.made_.push_back(each);
    if (error) {
      return Status::InvalidArgument(
          fmt::format("--output {}: cannot make {}: {}; name another folder", path, each.native(),
                      error.message()));
    }
  }
  if (!std::filesystem::is_directory(path, error)) {
    return Status::InvalidArgument(fmt::format("--output {} is not a folder; name another", path));
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return Status::InvalidArgument(
        fmt::format("--output {} cannot be written: {}", path, std::strerror(errno)));
  }
  return folder;
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
    std::filesystem::remove(*folder, ignored);  // fails where it is not empty
  }
}

}  // namespace marea
