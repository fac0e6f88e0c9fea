#include "engine/plan/machine_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "engine/config/json_text.h"
#include "io/units.h"

namespace marea {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr uint64_t kProfileBytesMax = kMiB;
constexpr const char* kNvmeKey = "nvme";

constexpr std::array<const char*, kMachineFigureCount> kFigureKeys = {
    "ram_copy_bytes_per_second",   "adamw_parameters_per_second", "cpu_fp32_flop_per_second",
    "cpu_bf16_flop_per_second",    "h2d_bytes_per_second",        "d2h_bytes_per_second",
    "both_h2d_bytes_per_second",   "both_d2h_bytes_per_second",   "gpu_bf16_flop_per_second",
    "all_gather_bytes_per_second",
};

struct RateKey {
  const char* key;
  double DriveRates::*rate;
};
constexpr RateKey kRateKeys[] = {
    {"read_bytes_per_second", &DriveRates::read},
    {"write_bytes_per_second", &DriveRates::write},
    {"mixed_read_bytes_per_second", &DriveRates::mixed_read},
    {"mixed_write_bytes_per_second", &DriveRates::mixed_write},
};

// What a file of another program may hold as text is no UTF-8 for sure.
std::string DumpProfile(const ordered_json& value) {
  return value.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void AddRates(const DriveRates& rates, ordered_json* object) {
  for (const RateKey& each : kRateKeys) (*object)[each.key] = rates.*each.rate;
}

// Reads with the place in mind; keeps the first failure and goes on with zeros.
class ProfileReader {
 public:
  explicit ProfileReader(const std::string& origin) : origin_(origin) {}

  const Status& status() const { return status_; }

  void Fail(const std::string& place, const std::string& what) {
    if (!status_.ok()) return;
    status_ = Status::InvalidArgument(
        fmt::format("{}: {} {}; measure the machine again with `marea bench --all "
                    "--machine-profile FILE`, or mend the file",
                    origin_, place, what));
  }

  const json& Member(const json& object, const std::string& place, const char* key) {
    static const json null;
    const auto found = object.find(key);
    if (found != object.end()) return *found;
    Fail(Join(place, key), "is missing");
    return null;
  }

  // The object itself, or an empty one. Only these keys may be in it.
  const json& Object(const json& value, const std::string& place,
                     const std::vector<std::string>& keys) {
    static const json none = json::object();
    if (!value.is_object()) {
      Fail(place, "is no object");
      return none;
    }
    for (const auto& [key, member] : value.items()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      Fail(Join(place, key), "is a key that this marea does not know");
    }
    return value;
  }

  std::string Text(const json& value, const std::string& place) {
    if (value.is_string()) return value.get<std::string>();
    Fail(place, "is no text");
    return {};
  }

  uint32_t Count(const json& value, const std::string& place) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > 0 &&
        value.get<uint64_t>() <= UINT32_MAX) {
      return value.get<uint32_t>();
    }
    Fail(place, "is no whole number above 0");
    return 0;
  }

  double PerSecond(const json& value, const std::string& place) {
    const double number = value.is_number() ? value.get<double>() : 0;
    if (std::isfinite(number) && number > 0) return number;
    Fail(place, fmt::format("is {}, not a number above 0",
                            value.is_number() ? value.dump() : value.type_name()));
    return 0;
  }

  static std::string Join(const std::string& place, const std::string& key) {
    return place.empty() ? key : place + "." + key;
  }

 private:
  const std::string& origin_;
  Status status_ = Status::Ok();
};

DriveRates ReadRates(ProfileReader& reader, const json& object, const std::string& place) {
  DriveRates rates;
  for (const RateKey& each : kRateKeys) {
    rates.*each.rate = reader.PerSecond(reader.Member(object, place, each.key),
                                        ProfileReader::Join(place, each.key));
  }
  return rates;
}

std::vector<std::string> RateKeysAnd(std::initializer_list<const char*> others) {
  std::vector<std::string> keys(others.begin(), others.end());
  for (const RateKey& each : kRateKeys) keys.emplace_back(each.key);
  return keys;
}

void ReadIdentity(ProfileReader& reader, const json& root, MachineProfile& profile) {
  const json& machine = reader.Object(reader.Member(root, "", "machine"), "machine",
                                      {"cpu", "hardware_threads", "threads", "kernel", "gpus"});
  profile.cpu = reader.Text(reader.Member(machine, "machine", "cpu"), "machine.cpu");
  profile.hardware_threads = reader.Count(reader.Member(machine, "machine", "hardware_threads"),
                                          "machine.hardware_threads");
  profile.threads = reader.Count(reader.Member(machine, "machine", "threads"), "machine.threads");
  profile.kernel = reader.Text(reader.Member(machine, "machine", "kernel"), "machine.kernel");
  const json& gpus = reader.Member(machine, "machine", "gpus");
  if (!gpus.is_array()) return reader.Fail("machine.gpus", "is no list");
  for (const json& gpu : gpus) {
    profile.gpus.push_back(reader.Text(gpu, fmt::format("machine.gpus[{}]", profile.gpus.size())));
  }
}

// Every figure is above 0, or null with its reason.
void ReadFigures(ProfileReader& reader, const json& root, const json& reasons,
                 MachineProfile& profile) {
  const json& figures =
      reader.Object(reader.Member(root, "", "figures"), "figures",
                    std::vector<std::string>(kFigureKeys.begin(), kFigureKeys.end()));
  for (int i = 0; i < kMachineFigureCount; ++i) {
    const char* const key = kFigureKeys[i];
    const std::string place = ProfileReader::Join("figures", key);
    const json& value = reader.Member(figures, "figures", key);
    const bool has_reason = reasons.contains(key);
    if (!value.is_null()) {
      profile.figures[i] = Measured::Of(reader.PerSecond(value, place));
      if (has_reason) reader.Fail(place, "has a figure and, in not_measured, a reason for none");
    } else if (has_reason) {
      profile.figures[i] =
          Measured::Not(reader.Text(reasons[key], ProfileReader::Join("not_measured", key)));
      if (profile.figures[i].reason.empty()) reader.Fail(place, "is null for an empty reason");
    } else {
      reader.Fail(place, "is null, and not_measured has no reason for it");
    }
  }
}

void ReadDrives(ProfileReader& reader, const json& root, const json& reasons,
                MachineProfile& profile) {
  const json& drives = reader.Member(root, "", kNvmeKey);
  if (!drives.is_array()) return reader.Fail(kNvmeKey, "is no list");
  for (const json& each : drives) {
    const std::string place = fmt::format("nvme[{}]", profile.drives.size());
    const json& drive = reader.Object(each, place, RateKeysAnd({"path", "model"}));
    profile.drives.push_back(
        {.path = reader.Text(reader.Member(drive, place, "path"), place + ".path"),
         .model = reader.Text(reader.Member(drive, place, "model"), place + ".model"),
         .rates = ReadRates(reader, drive, place)});
  }
  const bool has_reason = reasons.contains(kNvmeKey);
  if (has_reason) profile.no_drives_reason = reader.Text(reasons[kNvmeKey], "not_measured.nvme");
  if (profile.drives.empty() && profile.no_drives_reason.empty()) {
    reader.Fail(kNvmeKey, "is empty, and not_measured has no reason for it");
  }
  if (!profile.drives.empty() && has_reason) {
    reader.Fail(kNvmeKey, "has drives and, in not_measured, a reason for none");
  }
  const json& together = reader.Member(root, "", "nvme_together");
  if (together.is_null()) return;
  profile.drives_together =
      ReadRates(reader, reader.Object(together, "nvme_together", RateKeysAnd({})), "nvme_together");
}

}  // namespace

const char* MachineFigureKey(MachineFigure figure) {
  return kFigureKeys[static_cast<int>(figure)];
}

std::string ToJson(const MachineProfile& profile) {
  ordered_json root;
  root["format"] = kMachineProfileFormat;
  root["version"] = kMachineProfileVersion;
  root["machine"] = {{"cpu", profile.cpu},
                     {"hardware_threads", profile.hardware_threads},
                     {"threads", profile.threads},
                     {"kernel", profile.kernel},
                     {"gpus", profile.gpus}};
  ordered_json figures = ordered_json::object();
  ordered_json reasons = ordered_json::object();
  for (int i = 0; i < kMachineFigureCount; ++i) {
    const Measured& measured = profile.figures[i];
    figures[kFigureKeys[i]] = nullptr;
    if (measured.per_second.has_value()) figures[kFigureKeys[i]] = *measured.per_second;
    if (!measured.per_second.has_value()) reasons[kFigureKeys[i]] = measured.reason;
  }
  root["figures"] = std::move(figures);
  ordered_json& drives = root[kNvmeKey] = ordered_json::array();
  for (const ProfiledDrive& drive : profile.drives) {
    ordered_json object = {{"path", drive.path}, {"model", drive.model}};
    AddRates(drive.rates, &object);
    drives.push_back(std::move(object));
  }
  if (profile.drives.empty()) reasons[kNvmeKey] = profile.no_drives_reason;
  root["nvme_together"] = nullptr;
  if (profile.drives_together.has_value()) {
    root["nvme_together"] = ordered_json::object();
    AddRates(*profile.drives_together, &root["nvme_together"]);
  }
  root["not_measured"] = std::move(reasons);
  return DumpProfile(root);
}

Result<MachineProfile> ParseMachineProfile(const std::string& text, const std::string& origin) {
  MAREA_ASSIGN_OR_RETURN(const json root, ParseJsonText(text, origin));
  if (!root.is_object() || root.value("format", json()) != kMachineProfileFormat) {
    return Status::InvalidArgument(fmt::format(
        "{}: this is no machine profile of marea (\"format\" is not \"{}\"): write one with `marea "
        "bench --all --machine-profile FILE`",
        origin, kMachineProfileFormat));
  }
  ProfileReader reader(origin);
  const uint32_t version = reader.Count(reader.Member(root, "", "version"), "version");
  if (reader.status().ok() && version != kMachineProfileVersion) {
    reader.Fail("version",
                fmt::format("is {}, and this marea reads {}", version, kMachineProfileVersion));
  }
  if (!reader.status().ok()) return reader.status();
  MachineProfile profile;
  reader.Object(
      root, "",
      {"format", "version", "machine", "figures", kNvmeKey, "nvme_together", "not_measured"});
  std::vector<std::string> reason_keys(kFigureKeys.begin(), kFigureKeys.end());
  reason_keys.emplace_back(kNvmeKey);
  const json& reasons =
      reader.Object(reader.Member(root, "", "not_measured"), "not_measured", reason_keys);
  ReadIdentity(reader, root, profile);
  ReadFigures(reader, root, reasons, profile);
  ReadDrives(reader, root, reasons, profile);
  if (!reader.status().ok()) return reader.status();
  return profile;
}

Result<MachineProfile> ReadMachineProfile(const std::string& path) {
  MAREA_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kProfileBytesMax));
  return ParseMachineProfile(text, path);
}

}  // namespace marea
