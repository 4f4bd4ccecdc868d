#include "device/surroundings.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/time.h"
#include "device/host/busy_cores.h"

namespace redline::device {
namespace {

class SurroundingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("redline_surroundings_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  // A line per core this process may use, each with these ticks.
  void put_stat(int user, int idle, int stolen) {
    std::string text = "cpu  1 2 3 4 5 6 7 8 9 10\n";
    for (const int core : allowed_core_numbers())
      text += "cpu" + std::to_string(core) + " " + std::to_string(user) + " 40 0 " + std::to_string(idle) + " 7 0 0 " +
              std::to_string(stolen) + " 0 0\n";
    put("proc/stat", text);
  }
  std::filesystem::path root_;
};

TEST_F(SurroundingsTest, VersionTwoIsReadFromTheOwnGroup) {
  put("proc/self/cgroup", "0::/jobs/a\n");
  put("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("sys/fs/cgroup/jobs/a/cpu.stat", "usage_usec 10\nnr_periods 4\nnr_throttled 2\nthrottled_usec 2500\n");
  put("sys/fs/cgroup/jobs/a/memory.pressure",
      "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0 total=1\n");
  put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9999\n");
  put("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
  put("proc/self/task/11/schedstat", "1000 300 4\n");
  put("proc/self/task/12/schedstat", "1000 45 4\n");
  put("proc/vmstat", "pgpgin 50\npgpgout 30\npswpin 3\npswpout 4\n");
  put("proc/self/io", "rchar: 4100\nwchar: 1\nsyscr: 41\nsyscw: 2\nread_bytes: 512\nwrite_bytes: 1024\n");
  put_stat(100, 50, 20);
  const SurroundingsCounts counts = SurroundingsReader(root_).read();
  EXPECT_EQ(counts.throttled_ns, 2'500'000);
  EXPECT_EQ(counts.memory_pressure_ns, 77'000);  // the group's, not the machine's
  EXPECT_EQ(counts.io_pressure_ns, 5'000);       // the group has none
  EXPECT_EQ(counts.cpu_pressure_ns, std::nullopt);
  EXPECT_EQ(counts.run_wait_ns, 345);
  EXPECT_EQ(counts.swapped_pages, 7);
  EXPECT_EQ(counts.others_disk_bytes, 80 * 1024 - 512 - 1024);  // vmstat counts in KiB
  EXPECT_EQ(counts.read_calls, 41);
  EXPECT_EQ(counts.read_bytes, 4100);
  EXPECT_EQ(counts.disk_read_bytes, 512);
  EXPECT_FALSE(counts.stopped_ns);  // nobody watches for stops
  // Stolen ticks are not idle ones; what has a low priority gives way, unless this process has one too.
  const bool low = getpriority(PRIO_PROCESS, 0) > 0;
  EXPECT_DOUBLE_EQ(counts.busy_seconds.value(), counts.cores * (low ? 1.6 : 1.2));
  EXPECT_DOUBLE_EQ(counts.stolen_seconds.value(), counts.cores * 0.2);
}

TEST_F(SurroundingsTest, VersionOneCountsNanoseconds) {
  put("proc/self/cgroup", "4:cpu,cpuacct:/jobs/a\n");
  put("proc/self/mountinfo", "31 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  put("sys/fs/cgroup/cpu/jobs/a/cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 2500\n");
  EXPECT_EQ(SurroundingsReader(root_).read().throttled_ns, 2500);
}

TEST_F(SurroundingsTest, WhatIsNotThereIsAbsentAndSaid) {
  const SurroundingsReader reader(root_);
  const SurroundingsCounts counts = reader.read();
  EXPECT_EQ(counts.busy_seconds, std::nullopt);
  EXPECT_EQ(counts.run_wait_ns, std::nullopt);
  EXPECT_EQ(counts.throttled_ns, std::nullopt);
  EXPECT_EQ(counts.swapped_pages, std::nullopt);
  EXPECT_EQ(reader.unseen().size(), 7u);
  put("proc/pressure/cpu", "nonsense\n");
  EXPECT_EQ(SurroundingsReader(root_).read().cpu_pressure_ns, std::nullopt);
}

TEST(Surroundings, OwnWorkIsCounted) {
  const SurroundingsReader reader;
  const SurroundingsCounts before = reader.read();
  const int64_t until = thread_cpu_ns() + 30'000'000;
  volatile double sink = 0;
  while (thread_cpu_ns() < until) sink = sink + 1;
  const SurroundingsCounts after = reader.read();
  EXPECT_GE(after.own_cpu_ns - before.own_cpu_ns, 29'000'000);
  EXPECT_GT(after.at_ns, before.at_ns);
  if (before.run_wait_ns && after.run_wait_ns) {
    EXPECT_GE(*after.run_wait_ns, *before.run_wait_ns);
  }
}

}  // namespace
}  // namespace redline::device
