#include "io/drive_details.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/mount_table.h"
#include "io/sysfs.h"
#include "io/units.h"

namespace marea {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "none [mq-deadline] kyber": the one in brackets, or the whole line where there is only one.
std::string ActiveScheduler(const std::string& line) {
  const size_t open = line.find('[');
  const size_t close = line.find(']');
  if (open == std::string::npos || close == std::string::npos) return line;
  return line.substr(open + 1, close - open - 1);
}

std::optional<PcieLink> ReadLink(const fs::path& function, const char* which) {
  PcieLink link;
  link.speed = ReadSysfsLine(function / fmt::format("{}_link_speed", which));
  link.width =
      static_cast<uint32_t>(ReadSysfsNumber(function / fmt::format("{}_link_width", which)));
  link.bytes_per_second = PcieBytesPerSecond(link.speed, link.width);
  if (link.bytes_per_second == 0) return std::nullopt;
  return link;
}

// The PCIe function of an NVMe drive: block device -> controller -> function. With multipathing the
// block device belongs to a subsystem, which has no function of its own: then the controller of the
// same number.
fs::path PcieFunction(const fs::path& sys, const std::string& device) {
  std::error_code error;
  const fs::path direct = sys / "block" / device / "device" / "device";
  if (fs::exists(direct / "current_link_speed", error)) return direct;
  if (device.rfind("nvme", 0) != 0) return {};
  const std::string controller = device.substr(0, device.find('n', 4));
  const fs::path by_name = sys / "class" / "nvme" / controller / "device";
  return fs::exists(by_name / "current_link_speed", error) ? by_name : fs::path();
}

// The first sensor of the drive's controller, in thousandths of a degree.
std::optional<double> ReadCelsius(const fs::path& sys, const std::string& device) {
  const fs::path controller = sys / "block" / device / "device";
  std::vector<fs::path> folders;
  for (const fs::path& base : {controller, controller / "hwmon"}) {
    for (const std::string& name : NamesIn(base)) {
      if (name.rfind("hwmon", 0) == 0) folders.push_back(base / name);
    }
  }
  for (const fs::path& folder : folders) {
    const uint64_t millidegrees = ReadSysfsNumber(folder / "temp1_input");
    if (millidegrees > 0) return static_cast<double>(millidegrees) / 1000;
  }
  return std::nullopt;
}

bool IsBelow(const std::string& path, const std::string& folder) {
  if (folder == "/") return true;
  return path.compare(0, folder.size(), folder) == 0 &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

// The last mount that covers `path`.
void ReadMount(const fs::path& proc, const std::string& path, DriveDetails* details) {
  for (const Mount& mount : ReadMounts(proc)) {
    if (!IsBelow(path, mount.point) || mount.point.size() < details->mount_point.size()) continue;
    details->mount_point = mount.point;
    details->mount_options = mount.options + "," + mount.super_options;
  }
}

void ReadBlockDevice(const fs::path& sys, DriveDetails* details) {
  const std::string& device = details->drive.device;
  const fs::path block = sys / "block" / device;
  details->members = NamesIn(block / "slaves");
  details->dm_uuid = ReadSysfsLine(block / "dm" / "uuid");
  details->loop_file = ReadSysfsLine(block / "loop" / "backing_file");
  details->scheduler = ActiveScheduler(ReadSysfsLine(block / "queue" / "scheduler"));
  details->request_bytes_max = ReadSysfsNumber(block / "queue" / "max_sectors_kb") * kKiB;
  details->virtual_drive = device.rfind("vd", 0) == 0 || device.rfind("xvd", 0) == 0;
  details->celsius = ReadCelsius(sys, device);
  const fs::path function = PcieFunction(sys, device);
  if (function.empty()) return;
  details->link = ReadLink(function, "current");
  details->link_max = ReadLink(function, "max");
  details->numa_node = ReadNumaNode(function);
}

}  // namespace

double PcieBytesPerSecond(const std::string& speed, uint32_t width) {
  std::istringstream in(speed);
  double gigatransfers = 0;
  if (!(in >> gigatransfers) || gigatransfers <= 0) return 0;
  const double coding = gigatransfers < 8 ? 8.0 / 10 : 128.0 / 130;
  return gigatransfers * 1e9 / 8 * coding * width;
}

Result<DriveDetails> ReadDriveDetails(const std::string& path, const std::string& root) {
  DriveDetails details;
  MAREA_ASSIGN_OR_RETURN(details.drive, FindDrive(path));
  std::error_code error;
  const std::string whole = fs::canonical(path, error);
  ReadMount(root + "/proc", error ? path : whole, &details);
  if (!details.drive.device.empty()) ReadBlockDevice(root + "/sys", &details);
  return details;
}

std::optional<DriveTraffic> ReadDriveTraffic(const std::string& device, const std::string& root) {
  constexpr uint64_t kSectorBytes = 512;  // of diskstats, whatever the drive's own are
  std::ifstream in(root + "/proc/diskstats");
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    uint64_t skip = 0, read_sectors = 0, write_sectors = 0;
    std::string name;
    fields >> skip >> skip >> name >> skip >> skip >> read_sectors >> skip >> skip >> skip >>
        write_sectors;
    if (!fields || name != device) continue;
    return DriveTraffic{.read_bytes = read_sectors * kSectorBytes,
                        .write_bytes = write_sectors * kSectorBytes};
  }
  return std::nullopt;
}

}  // namespace marea
