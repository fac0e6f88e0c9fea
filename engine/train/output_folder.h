// The folder where a run leaves its files: there before the run allocates anything, and gone again
// if the run does not come to be.
//
// Owner: TrainingRun::Create. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/status.h"

namespace marea {

class OutputFolder {
 public:
  // Makes the folder and those above it. InvalidArgument names `--output` and what is in the way:
  // a file, or a folder that may not be written. Blocks.
  static Result<OutputFolder> Make(const std::string& path);
  // Removes the folders that Make made, as far as they are still empty, unless Keep was called.
  ~OutputFolder();
  OutputFolder(OutputFolder&&) = default;
  OutputFolder& operator=(OutputFolder&&) = delete;

  void Keep() { made_.clear(); }

 private:
  OutputFolder() = default;

  std::vector<std::filesystem::path> made_;  // outermost first
};

}  // namespace marea
