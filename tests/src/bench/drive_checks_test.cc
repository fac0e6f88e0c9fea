// What marks a figure.
#include "src/bench/drive_checks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "io/data_file.h"
#include "io/units.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

std::string Joined(const std::vector<std::string>& texts) {
  return std::accumulate(texts.begin(), texts.end(), std::string());
}

PathFacts PlainFacts() {
  PathFacts facts;
  facts.folder = "/drive";
  facts.directory.file_system = "ext4";
  facts.details.drive.device = "nvme0n1";
  facts.details.mount_options = "rw,relatime";
  return facts;
}

TEST(StorageWarningsTest, APlainDriveIsNotMarked) {
  EXPECT_EQ(Joined(StorageWarnings(PlainFacts())), "");
}

TEST(StorageWarningsTest, WhatStandsBetweenTheFigureAndTheDriveIsNamed) {
  const auto marked = [](const std::function<void(PathFacts&)>& change) {
    PathFacts facts = PlainFacts();
    change(facts);
    return Joined(StorageWarnings(facts));
  };
  const auto holds = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(holds(marked([](auto& f) { f.directory.file_system = "btrfs"; }), "copies on write"));
  EXPECT_TRUE(holds(marked([](auto& f) { f.directory.file_system = "zfs"; }), "compress"));
  EXPECT_TRUE(holds(marked([](auto& f) {
                      f.directory.file_system = "f2fs";
                      f.details.mount_options = "rw,compress_algorithm=zstd";
                    }),
                    "compression"));
  EXPECT_TRUE(holds(marked([](auto& f) { f.details.loop_file = "/disk.img"; }), "/disk.img"));
  EXPECT_TRUE(holds(marked([](auto& f) {
                      f.details.members = {"nvme0n1", "nvme1n1"};
                      f.details.dm_uuid = "VDO-1234";
                    }),
                    "deduplicates and compresses, over nvme0n1, nvme1n1"));
  EXPECT_TRUE(holds(marked([](auto& f) { f.details.virtual_drive = true; }), "virtual machine"));
  EXPECT_TRUE(holds(marked([](auto& f) { f.details.drive.rotational = true; }), "spinning"));
  EXPECT_TRUE(holds(marked([](auto& f) { f.details.drive.device = ""; }), "not known"));
  EXPECT_TRUE(holds(marked([](auto& f) {
                      f.details.link = PcieLink{"8.0 GT/s PCIe", 2, 1.97e9};
                      f.details.link_max = PcieLink{"16.0 GT/s PCIe", 4, 7.88e9};
                    }),
                    "16.0 GT/s PCIe x4"));
}

TEST(TrafficTest, OthersAndCachesAreToldApart) {
  const auto text = [](uint64_t drive_read, uint64_t own_read) {
    return Joined(
        TrafficWarnings({.device = "nvme0n1", .drive = {drive_read, 0}, .own = {own_read, 0}}));
  };
  EXPECT_EQ(text(kGiB, kGiB), "");
  EXPECT_EQ(text(kGiB + kGiB / 32, kGiB), "");
  EXPECT_NE(text(2 * kGiB, kGiB).find("others read 1.00 GiB on nvme0n1"), std::string::npos);
  EXPECT_NE(text(kGiB / 2, kGiB).find("read only 512 MiB of our 1.00 GiB"), std::string::npos);
  EXPECT_NE(Joined(TrafficWarnings({.device = "d", .drive = {0, kGiB}, .own = {0, 0}}))
                .find("others wrote 1.00 GiB"),
            std::string::npos);
}

TEST(CliffTest, AFallThatLastsIsNamedWithItsPlace) {
  std::vector<uint64_t> seconds(20, 2'000'000'000);
  EXPECT_EQ(CliffWarning(seconds), "");
  seconds[7] = 100'000'000;  // one slow second is noise
  EXPECT_EQ(CliffWarning(seconds), "");
  seconds[7] = 2'000'000'000;
  for (size_t i = 12; i < seconds.size(); ++i) seconds[i] = 500'000'000;
  const std::string text = CliffWarning(seconds);
  EXPECT_NE(text.find("from 2.00 GB/s to"), std::string::npos) << text;
  EXPECT_NE(text.find("cache"), std::string::npos);
  EXPECT_EQ(CliffWarning({}), "");
}

// Real files: reserved and never written, with holes, and written.
TEST(ExtentsTest, UnwrittenExtentsAndHolesAreSeen) {
  const TempDir folder;
  constexpr uint64_t kBytes = 8 * kMiB;
  DataFileOptions by_owner;
  by_owner.first_write = FirstWrite::kByOwner;
  const DataFile reserved = DataFile::Create(folder.File("reserved"), kBytes, by_owner).value();
  const DataFile written = DataFile::Create(folder.File("written"), kBytes).value();
  const UniqueFd hole(::open(folder.File("hole").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(hole.get(), kBytes), 0);
  const std::string told = Joined(ExtentWarnings(reserved.fd(), "/drive", kBytes));
  if (told.empty()) GTEST_SKIP() << "this file system does not tell of extents";
  EXPECT_NE(told.find("8.00 MiB of the file is reserved but unwritten"), std::string::npos) << told;
  EXPECT_EQ(Joined(ExtentWarnings(written.fd(), "/drive", kBytes)), "");
  EXPECT_NE(Joined(ExtentWarnings(hole.get(), "/drive", kBytes)).find("is a hole"),
            std::string::npos);
}

}  // namespace
}  // namespace marea
