// Drives as /sys and /proc describe them: made-up ones in a folder, and the one below us.
#include "io/drive_details.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/io/temp_dir.h"

namespace marea {
namespace {

class DriveDetailsTest : public testing::Test {
 protected:
  DriveDetailsTest() : device_(FindDrive(".").value().device) {}

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_.File(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  DriveDetails Read() { return ReadDriveDetails(".", root_.File("")).value(); }

  TempDir root_;
  // The fields hang on the name of the drive below this folder, whose kind does not matter.
  const std::string device_;
};

TEST_F(DriveDetailsTest, LinkSchedulerAndTemperatureAreRead) {
  if (device_.empty()) GTEST_SKIP() << "this folder has no drive of its own";
  const std::string block = "sys/block/" + device_;
  Write(block + "/queue/scheduler", "none [mq-deadline] kyber");
  Write(block + "/queue/max_sectors_kb", "512");
  Write(block + "/device/hwmon1/temp1_input", "41850");
  Write(block + "/device/device/current_link_speed", "16.0 GT/s PCIe");
  Write(block + "/device/device/current_link_width", "4");
  Write(block + "/device/device/max_link_speed", "32.0 GT/s PCIe");
  Write(block + "/device/device/max_link_width", "4");
  Write(block + "/device/device/numa_node", "1");
  const DriveDetails details = Read();
  EXPECT_EQ(details.scheduler, "mq-deadline");
  EXPECT_EQ(details.request_bytes_max, 512u * 1024);
  ASSERT_TRUE(details.celsius.has_value());
  EXPECT_DOUBLE_EQ(*details.celsius, 41.85);
  ASSERT_TRUE(details.link.has_value());
  EXPECT_EQ(details.link->width, 4u);
  EXPECT_NEAR(details.link->bytes_per_second, 7.877e9, 1e7);
  ASSERT_TRUE(details.link_max.has_value());
  EXPECT_NEAR(details.link_max->bytes_per_second, 15.75e9, 2e7);
  EXPECT_EQ(details.numa_node, 1);
}

TEST_F(DriveDetailsTest, StackedAndLoopDevicesAreTold) {
  if (device_.empty()) GTEST_SKIP() << "this folder has no drive of its own";
  const std::string block = "sys/block/" + device_;
  Write(block + "/slaves/nvme1n1", "");
  Write(block + "/slaves/nvme0n1", "");
  Write(block + "/dm/uuid", "CRYPT-LUKS2-abc");
  Write(block + "/loop/backing_file", "/images/disk.img");
  const DriveDetails details = Read();
  EXPECT_EQ(details.members, (std::vector<std::string>{"nvme0n1", "nvme1n1"}));
  EXPECT_EQ(details.dm_uuid, "CRYPT-LUKS2-abc");
  EXPECT_EQ(details.loop_file, "/images/disk.img");
  EXPECT_FALSE(details.link.has_value());
  EXPECT_FALSE(details.celsius.has_value());
}

TEST_F(DriveDetailsTest, TheInnermostMountCounts) {
  const std::string here = std::filesystem::canonical(".");
  Write("proc/self/mountinfo",
        "20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "21 20 8:2 / " +
            here +
            " rw,noatime - xfs /dev/sdb1 rw,logbsize=32k\n"
            "22 20 8:3 / " +
            here + "x rw - btrfs /dev/sdc1 rw,compress");
  const DriveDetails details = Read();
  EXPECT_EQ(details.mount_point, here);
  EXPECT_EQ(details.mount_options, "rw,noatime,rw,logbsize=32k");
}

TEST_F(DriveDetailsTest, TrafficIsInSectorsOf512Bytes) {
  Write("proc/diskstats",
        " 259 0 nvme0n1 10 1 2048 5 20 2 4096 7 0 9 12 0 0 0 0 0 0\n"
        " 259 1 nvme0n1p1 1 1 8 5 2 2 8 7 0 9 12");
  const auto traffic = ReadDriveTraffic("nvme0n1", root_.File(""));
  ASSERT_TRUE(traffic.has_value());
  EXPECT_EQ(traffic->read_bytes, 1024u * 1024);
  EXPECT_EQ(traffic->write_bytes, 2u * 1024 * 1024);
  EXPECT_FALSE(ReadDriveTraffic("nvme1n1", root_.File("")).has_value());
  EXPECT_FALSE(ReadDriveTraffic("", root_.File("")).has_value());
}

TEST(PcieTest, CodingIsTakenOff) {
  EXPECT_NEAR(PcieBytesPerSecond("8.0 GT/s PCIe", 4), 3.938e9, 1e6);
  EXPECT_NEAR(PcieBytesPerSecond("5.0 GT/s PCIe", 4), 2.0e9, 1);
  EXPECT_EQ(PcieBytesPerSecond("Unknown", 4), 0);
  EXPECT_EQ(PcieBytesPerSecond("8.0 GT/s PCIe", 0), 0);
}

TEST(RealDriveTest, TheFolderOfTheTestHasAMount) {
  const Result<DriveDetails> details = ReadDriveDetails(".");
  ASSERT_TRUE(details.ok()) << details.status().message();
  EXPECT_FALSE(details.value().mount_point.empty());
  EXPECT_FALSE(details.value().mount_options.empty());
  EXPECT_FALSE(ReadDriveDetails("/nowhere").ok());
}

}  // namespace
}  // namespace marea
