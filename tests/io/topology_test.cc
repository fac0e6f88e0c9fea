#include "io/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "io/drive_info.h"
#include "io/memory_limits.h"
#include "io/units.h"
#include "tests/io/child_process.h"
#include "tests/io/temp_dir.h"

namespace marea {
namespace {

TEST(TopologyTest, DescribesThisMachine) {
  const Result<Topology> topology = ReadTopology();
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(topology.value().thread_count, static_cast<uint32_t>(CPU_COUNT(&set)));
  EXPECT_GE(topology.value().core_count, 1u);
  EXPECT_LE(topology.value().core_count, topology.value().thread_count);
  EXPECT_GE(topology.value().cpu_quota, 1u);
  EXPECT_LE(topology.value().cpu_quota, topology.value().thread_count);
  uint64_t node_bytes = 0;
  for (const NumaNode& node : topology.value().nodes) node_bytes += node.memory_bytes;
  const MemoryLimits limits = ReadMemoryLimits().value();
  // No closer bound: some virtual machines are given memory as they use it, so the two readings may
  // be of different sizes.
  EXPECT_GT(node_bytes, 0u);
  EXPECT_LE(limits.available_bytes, limits.total_bytes);
}

TEST(TopologyTest, HonoursTheAffinity) {
  EXPECT_EQ(RunInChild([]() -> std::string {
              cpu_set_t all;
              if (::sched_getaffinity(0, sizeof(all), &all) != 0) return "no affinity";
              int first = 0;
              while (!CPU_ISSET(first, &all)) ++first;
              cpu_set_t one;
              CPU_ZERO(&one);
              CPU_SET(first, &one);
              if (::sched_setaffinity(0, sizeof(one), &one) != 0) return "no affinity";
              const Topology topology = ReadTopology().value();
              return topology.thread_count == 1 && topology.core_count == 1 ? "" : "more than one";
            }),
            "");
}

TEST(TopologyTest, BindsAThreadToANode) {
  const Topology topology = ReadTopology().value();
  EXPECT_EQ(RunInChild([&]() -> std::string {
              const Status bound = BindThisThreadToNode(topology.nodes.front().index);
              if (!bound.ok()) return bound.message();
              return BindThisThreadToNode(4711).ok() ? "node 4711 exists" : "";
            }),
            "");
}

TEST(MemoryLimitsTest, ReadsThisProcess) {
  const ProcessMemory memory = ReadProcessMemory().value();
  EXPECT_GT(memory.resident_bytes, kMiB);
  EXPECT_GE(memory.peak_resident_bytes, memory.resident_bytes);
  EXPECT_EQ(RunInChild([]() -> std::string {
              if (!LimitLockedMemory(kMiB)) return "no limit";
              return ReadMemoryLimits().value().memlock_bytes == kMiB ? "" : "not 1 MiB";
            }),
            "");
}

// A machine made of files.
class FakeRoot {
 public:
  FakeRoot() { Write("/proc/meminfo", "MemTotal:  16777216 kB\nMemAvailable:  1048576 kB\n"); }
  void Write(const std::string& path, const std::string& text) {
    const std::string file = folder_.path() + path;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file) << text;
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TempDir folder_;
};

TEST(MemoryLimitsTest, NoCgroupMeansNoLimit) {
  FakeRoot root;
  const MemoryLimits limits = ReadMemoryLimits(root.path()).value();
  EXPECT_EQ(limits.total_bytes, 16 * kGiB);
  EXPECT_EQ(limits.available_bytes, kGiB);
  EXPECT_EQ(limits.cgroup_bytes, kNoLimit);
  EXPECT_EQ(ReadCgroupCpuQuota(root.path()), 0);
}

TEST(MemoryLimitsTest, AMissingProcIsAStatus) {
  const Result<MemoryLimits> limits = ReadMemoryLimits("/nowhere");
  ASSERT_FALSE(limits.ok());
  EXPECT_NE(limits.status().message().find("/nowhere/proc/meminfo"), std::string::npos);
}

TEST(MemoryLimitsTest, Version2TakesTheSmallestOnTheWayUp) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/user/job\n");
  root.Write("/proc/self/mountinfo",
             "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  root.Write("/sys/fs/cgroup/user/job/memory.max", "max\n");
  root.Write("/sys/fs/cgroup/user/memory.max", "4294967296\n");
  root.Write("/sys/fs/cgroup/user/cpu.max", "150000 100000\n");
  root.Write("/sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  const MemoryLimits limits = ReadMemoryLimits(root.path()).value();
  EXPECT_EQ(limits.cgroup_bytes, 4 * kGiB);
  EXPECT_EQ(limits.cgroup_path, root.path() + "/sys/fs/cgroup/user/memory.max");
  EXPECT_DOUBLE_EQ(ReadCgroupCpuQuota(root.path()), 1.5);
  root.Write("/sys/fs/cgroup/user/job/memory.max", "1073741824\n");
  EXPECT_EQ(ReadMemoryLimits(root.path()).value().cgroup_bytes, kGiB);
}

TEST(MemoryLimitsTest, AMountPointMayHoldASpace) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/job\n");
  root.Write("/proc/self/mountinfo",
             "a line that is none\n30 23 0:26 / /sys/c\\040group rw - cgroup2 cgroup2 rw\n");
  root.Write("/sys/c group/job/memory.max", "4294967296\n");
  EXPECT_EQ(ReadMemoryLimits(root.path()).value().cgroup_bytes, 4 * kGiB);
}

TEST(MemoryLimitsTest, Version1InAContainer) {
  FakeRoot root;
  // The mount shows only the container's part of the tree.
  root.Write("/proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc/inner\n0::/\n");
  root.Write("/proc/self/mountinfo",
             "40 30 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
             "41 30 0:31 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  root.Write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  root.Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  root.Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadMemoryLimits(root.path()).value().cgroup_bytes, 2 * kGiB);
  root.Write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(ReadMemoryLimits(root.path()).value().cgroup_bytes, kGiB);
  EXPECT_DOUBLE_EQ(ReadCgroupCpuQuota(root.path()), 2.0);
  root.Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(ReadCgroupCpuQuota(root.path()), 0);
}

TEST(DriveInfoTest, FindsTheDriveOfAFolder) {
  const TempDir folder;
  const Result<DriveInfo> drive = FindDrive(folder.path());
  ASSERT_TRUE(drive.ok()) << drive.status().message();
  if (!drive.value().device.empty()) {
    EXPECT_TRUE(std::filesystem::exists("/sys/block/" + drive.value().device));
    EXPECT_GE(drive.value().logical_block_bytes, 512u);
  }
  EXPECT_FALSE(FindDrive(folder.File("absent")).ok());
  EXPECT_FALSE(KernelVersion().empty());
}

}  // namespace
}  // namespace marea
