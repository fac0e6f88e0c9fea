#include "io/unnamed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace marea {

UniqueFd OpenUnnamedFile(const std::string& folder, int* error_number) {
  UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600));
  *error_number = fd.valid() ? 0 : errno;
  if (*error_number != EOPNOTSUPP && *error_number != EISDIR && *error_number != ENOENT) return fd;
  std::string name = folder + "/.marea-probe-XXXXXX";
  fd = UniqueFd(::mkostemp(name.data(), O_CLOEXEC | O_DIRECT));
  *error_number = fd.valid() ? 0 : errno;
  if (fd.valid()) ::unlink(name.c_str());
  return fd;
}

}  // namespace marea
