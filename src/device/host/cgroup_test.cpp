#include "device/host/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace redline::device {
namespace {

// A file tree that stands for /: /proc/self and the cgroup mounts.
class CgroupTree : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("redline_cgroup_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void put_v2(const std::string& group) {
    put("proc/self/cgroup", "0::" + group + "\n");
    put("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  std::filesystem::path root_;
};

TEST_F(CgroupTree, NothingThereMeansNoLimit) {
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_EQ(limits.cpu_quota, 0.0);
  EXPECT_EQ(limits.memory_limit, 0U);
}

TEST_F(CgroupTree, Version2TakesTheTightestAncestor) {
  put_v2("/user.slice/job");
  put("sys/fs/cgroup/user.slice/job/cpu.max", "400000 100000\n");
  put("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  put("sys/fs/cgroup/user.slice/memory.max", "8589934592\n");
  put("sys/fs/cgroup/user.slice/memory.current", "3221225472\n");
  put("sys/fs/cgroup/user.slice/memory.stat", "anon 1\ninactive_file 1073741824\nactive_file 5\n");
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 1.5);
  EXPECT_EQ(limits.memory_limit, uint64_t{8} << 30);
  EXPECT_EQ(limits.memory_available, uint64_t{6} << 30) << "8 GiB less 3 used, of which 1 is reclaimable cache";
}

TEST_F(CgroupTree, Version2WithoutQuota) {
  put_v2("/");
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(read_cgroup_limits(root_).cpu_quota, 0.0);
}

// A container that sees the host's group name but mounts only its own part.
TEST_F(CgroupTree, Version1InsideAContainer) {
  put("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n");
  put("proc/self/mountinfo",
      "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "2147483648\n");
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 0.5);
  EXPECT_EQ(limits.memory_limit, uint64_t{1} << 30);
  EXPECT_EQ(limits.memory_available, 0U) << "more used than allowed";
}

TEST_F(CgroupTree, Version1NoLimit) {
  put("proc/self/cgroup", "5:memory:/\n4:cpu:/\n");
  put("proc/self/mountinfo",
      "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup "
      "cgroup rw,memory\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_EQ(limits.cpu_quota, 0.0);
  EXPECT_EQ(limits.memory_limit, 0U);
}

TEST_F(CgroupTree, JunkIsNoLimit) {
  put("proc/self/cgroup", "::\n:\n0::/../../x\nnonsense");
  put("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\nbroken line\n");
  put("sys/fs/cgroup/cpu.max", "many few\n");
  put("sys/fs/cgroup/memory.max", "-5\n");
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_EQ(limits.cpu_quota, 0.0);
  EXPECT_EQ(limits.memory_limit, 0U);
}

}  // namespace
}  // namespace redline::device
