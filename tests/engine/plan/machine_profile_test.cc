// A machine profile comes back as it was, and a bad file is refused with its name and key.
#include "engine/plan/machine_profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

namespace marea {
namespace {

using nlohmann::json;

// Figures without a short decimal form.
MachineProfile SomeProfile() {
  MachineProfile profile;
  profile.cpu = "A processor \"with\" marks";
  profile.hardware_threads = 96;
  profile.threads = 48;
  profile.kernel = "6.1.0";
  profile.gpus = {"NVIDIA H200", "NVIDIA H200"};
  for (int i = 0; i < kMachineFigureCount; ++i) {
    profile.figures[i] = Measured::Of(std::exp(10.0 + i) / 3);
  }
  profile.figure(MachineFigure::kAllGather) = Measured::Not("one rank");
  profile.drives = {{"/mnt/a", "A drive", {7.1e9 / 3, 4.2e9, 3e9, 2.9e9}},
                    {"b", "", {1e9, 2e9, 0.5e9, 0.25}}};
  profile.drives_together = DriveRates{8.1e9, 6.2e9, 3.5e9, 1e9 / 7};
  return profile;
}

MachineProfile WithoutDrives() {
  MachineProfile profile = SomeProfile();
  profile.drives.clear();
  profile.drives_together.reset();
  profile.no_drives_reason = "no --nvme PATH was given";
  return profile;
}

std::string ProfileRefusal(const json& root) {
  const Result<MachineProfile> read = ParseMachineProfile(root.dump(), "some/profile.json");
  if (read.ok()) return "";
  EXPECT_EQ(read.status().code(), ErrorCode::kInvalidArgument);
  return read.status().message();
}

TEST(MachineProfile, ComesBackAsItWas) {
  for (const MachineProfile& profile : {SomeProfile(), WithoutDrives()}) {
    const Result<MachineProfile> read = ParseMachineProfile(ToJson(profile), "profile.json");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_TRUE(read.value() == profile) << ToJson(read.value());
  }
}

TEST(MachineProfile, KeysCarryTheirUnits) {
  const json root = json::parse(ToJson(SomeProfile()));
  EXPECT_EQ(root["format"], "marea-machine");
  EXPECT_EQ(root["version"], 1);
  EXPECT_EQ(root["machine"]["gpus"].size(), 2u);
  EXPECT_EQ(root["figures"].size(), static_cast<size_t>(kMachineFigureCount));
  for (const auto& [key, value] : root["figures"].items()) {
    EXPECT_TRUE(key.ends_with("_per_second")) << key;
  }
  EXPECT_EQ(root["figures"]["ram_copy_bytes_per_second"], std::exp(10.0) / 3);
  EXPECT_TRUE(root["figures"]["all_gather_bytes_per_second"].is_null());
  EXPECT_EQ(root["not_measured"], json({{"all_gather_bytes_per_second", "one rank"}}));
  EXPECT_EQ(root["nvme"][1]["mixed_write_bytes_per_second"], 0.25);
  const json alone = json::parse(ToJson(WithoutDrives()));
  EXPECT_EQ(alone["nvme"], json::array());
  EXPECT_TRUE(alone["nvme_together"].is_null());
  EXPECT_EQ(alone["not_measured"]["nvme"], "no --nvme PATH was given");
}

TEST(MachineProfile, ABadFileIsRefusedWithItsNameAndKey) {
  struct Case {
    std::function<void(json&)> spoil;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {[](json& root) { root["format"] = "marea-plan"; }, {"no machine profile"}},
      {[](json& root) { root = json::array(); }, {"no machine profile"}},
      {[](json& root) { root["version"] = 2; }, {"version is 2", "reads 1"}},
      {[](json& root) { root.erase("version"); }, {"version is missing"}},
      {[](json& root) { root["version"] = "1"; }, {"version is no whole number"}},
      {[](json& root) { root.erase("machine"); }, {"machine is missing"}},
      {[](json& root) { root["machine"].erase("cpu"); }, {"machine.cpu is missing"}},
      {[](json& root) { root["machine"]["threads"] = -1; }, {"machine.threads is no whole"}},
      {[](json& root) { root["machine"]["gpus"] = "one"; }, {"machine.gpus is no list"}},
      {[](json& root) { root["machine"]["gpus"][1] = 7; }, {"machine.gpus[1] is no text"}},
      {[](json& root) { root.erase("figures"); }, {"figures is missing"}},
      {[](json& root) { root["figures"].erase("adamw_parameters_per_second"); },
       {"figures.adamw_parameters_per_second is missing"}},
      {[](json& root) { root["figures"]["h2d_bytes_per_second"] = -5e9; },
       {"figures.h2d_bytes_per_second is -5000000000.0", "above 0"}},
      {[](json& root) { root["figures"]["d2h_bytes_per_second"] = 0; },
       {"figures.d2h_bytes_per_second is 0"}},
      {[](json& root) { root["figures"]["d2h_bytes_per_second"] = "fast"; },
       {"figures.d2h_bytes_per_second is string"}},
      {[](json& root) { root["figures"]["cpu_fp32_flop_per_second"] = nullptr; },
       {"figures.cpu_fp32_flop_per_second is null", "not_measured"}},
      {[](json& root) { root["figures"]["ram_bytes"] = 1; }, {"figures.ram_bytes", "not know"}},
      {[](json& root) { root["figures"]["all_gather_bytes_per_second"] = 1e9; },
       {"figures.all_gather_bytes_per_second", "not_measured"}},
      {[](json& root) { root["not_measured"]["all_gather_bytes_per_second"] = ""; },
       {"figures.all_gather_bytes_per_second", "empty reason"}},
      {[](json& root) { root["not_measured"]["speed"] = "no"; }, {"not_measured.speed"}},
      {[](json& root) { root["nvme"][1].erase("write_bytes_per_second"); },
       {"nvme[1].write_bytes_per_second is missing"}},
      {[](json& root) { root["nvme"][0]["read_bytes_per_second"] = -1; },
       {"nvme[0].read_bytes_per_second is -1"}},
      {[](json& root) { root["nvme"][0] = 3; }, {"nvme[0] is no object"}},
      {[](json& root) { root["nvme"] = json::array(); }, {"nvme is empty", "not_measured"}},
      {[](json& root) { root["nvme_together"].erase("mixed_read_bytes_per_second"); },
       {"nvme_together.mixed_read_bytes_per_second is missing"}},
      {[](json& root) { root["date"] = "today"; }, {"date is a key"}},
  };
  const json good = json::parse(ToJson(SomeProfile()));
  ASSERT_EQ(ProfileRefusal(good), "");
  for (const Case& each : cases) {
    json root = good;
    each.spoil(root);
    const std::string message = ProfileRefusal(root);
    for (const std::string& part : each.parts) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    }
    EXPECT_NE(message.find("some/profile.json"), std::string::npos) << message;
  }
}

TEST(MachineProfile, AFileThatIsNoJsonOrIsMissing) {
  const Result<MachineProfile> text = ParseMachineProfile("{\"format\": ", "profile.json");
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.status().message().find("profile.json, line 1"), std::string::npos)
      << text.status().message();
  const std::string path = testing::TempDir() + "/machine_profile_test.json";
  std::filesystem::remove(path);
  const Result<MachineProfile> missing = ReadMachineProfile(path);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(missing.status().message().find(path), std::string::npos);
  std::ofstream(path) << ToJson(SomeProfile());
  const Result<MachineProfile> read = ReadMachineProfile(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read.value() == SomeProfile());
}

}  // namespace
}  // namespace marea
