// A folder of its own for each test, on the drive that holds the build (a folder for temporary
// files may be memory, which marea refuses as a tier). Removed at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "io/check.h"

namespace marea {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::current_path() / "marea-test-XXXXXX").string();
    MAREA_CHECK(::mkdtemp(name.data()) != nullptr, "no temporary folder");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace marea
