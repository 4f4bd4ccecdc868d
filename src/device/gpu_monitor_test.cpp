#include "device/gpu_monitor.h"

#include <gtest/gtest.h>

namespace redline::device {
namespace {

TEST(GpuMonitor, IsNullWithoutTheLibrary) { EXPECT_EQ(GpuMonitor::open("libno-such-nvml.so.1"), nullptr); }

// A library that lacks NVML's functions is as good as none.
TEST(GpuMonitor, IsNullForAnotherLibrary) { EXPECT_EQ(GpuMonitor::open("libm.so.6"), nullptr); }

TEST(GpuMonitor, ReadsUtilisationAndMemory) {
  const auto monitor = GpuMonitor::open(REDLINE_FAKE_NVML);
  ASSERT_NE(monitor, nullptr);
  EXPECT_EQ(monitor->count(), 2);
  const auto reading = monitor->read(0);
  ASSERT_TRUE(reading.has_value());
  EXPECT_DOUBLE_EQ(reading->utilisation, 0.87);
  EXPECT_DOUBLE_EQ(reading->memory_utilisation, 0.40);
  EXPECT_EQ(reading->memory_used_bytes, uint64_t{6} << 30);
  EXPECT_EQ(reading->memory_total_bytes, uint64_t{24} << 30);
  const auto described = monitor->describe(1);
  ASSERT_TRUE(described.has_value());
  EXPECT_EQ(described->name, "Imitated\\x1bGPU") << "names from a driver must not steer a terminal";
}

TEST(GpuMonitor, OthersCountOnTheGpusOfThisProcess) {
  EXPECT_EQ(GpuMonitor::open(REDLINE_FAKE_NVML)->other_users(), 2);
}

TEST(GpuMonitor, AnUnreadableGpuIsAnOutcome) {
  const auto monitor = GpuMonitor::open(REDLINE_FAKE_NVML);
  ASSERT_NE(monitor, nullptr);
  EXPECT_FALSE(monitor->read(1).has_value());
  EXPECT_FALSE(monitor->read(2).has_value());
  EXPECT_FALSE(monitor->read(-1).has_value());
  EXPECT_FALSE(monitor->describe(5).has_value());
}

}  // namespace
}  // namespace redline::device
