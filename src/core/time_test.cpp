#include "core/time.h"

#include <gtest/gtest.h>

#include <regex>

namespace redline {
namespace {

TEST(Time, TimestampsHaveTheDocumentedShape) {
  EXPECT_TRUE(std::regex_match(utc_timestamp(), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)")));
  EXPECT_TRUE(std::regex_match(local_date_for_path(), std::regex(R"(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)")));
}

TEST(Time, ClocksMoveForward) {
  const int64_t wall = now_ns(), thread = thread_cpu_ns(), process = process_cpu_ns();
  volatile double sink = 1.0;
  for (int i = 0; i < 100'000; ++i) sink = sink * 1.0000001;
  EXPECT_GT(now_ns(), wall);
  EXPECT_GT(thread_cpu_ns(), thread);
  EXPECT_GT(process_cpu_ns(), process);
  EXPECT_DOUBLE_EQ(seconds_between(1'000'000'000, 3'500'000'000), 2.5);
}

}  // namespace
}  // namespace redline
