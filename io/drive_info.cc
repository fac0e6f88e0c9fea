#include "io/drive_info.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include <cerrno>
#include <filesystem>

#include "io/sysfs.h"

namespace marea {
namespace {

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

Result<DriveInfo> FindDrive(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return Status::Io(path, errno);
  DriveInfo info;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::canonical(
      fmt::format("/sys/dev/block/{}:{}", major(status.st_dev), minor(status.st_dev)), error);
  if (error) return info;  // overlayfs, network, tmpfs: no block device of its own
  if (std::filesystem::exists(folder / "partition", error)) folder = folder.parent_path();
  info.device = folder.filename();
  info.model = ReadSysfsLine(folder / "device" / "model");
  info.rotational = ReadSysfsNumber(folder / "queue" / "rotational") != 0;
  info.logical_block_bytes =
      static_cast<uint32_t>(ReadSysfsNumber(folder / "queue" / "logical_block_size"));
  info.in_memory = StartsWith(info.device, "zram") || StartsWith(info.device, "ram") ||
                   StartsWith(info.device, "pmem");
  return info;
}

std::string KernelVersion() {
  utsname name{};
  return ::uname(&name) == 0 ? std::string(name.release) : std::string("unknown");
}

}  // namespace marea
