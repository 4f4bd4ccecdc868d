#include "device/host/neighbours.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace redline::device {
namespace {

std::string stat_line(int pid, const std::string& name, int user, int system, int policy) {
  std::string text = std::to_string(pid) + " (" + name + ") S";
  for (int field = 4; field <= 52; ++field)
    text += " " + std::to_string(field == 14 ? user : field == 15 ? system : field == 41 ? policy : 0);
  return text + "\n";
}

TEST(Neighbours, ALineOfStat) {
  const auto found = process_ticks(stat_line(7, "a (b) c", 12, 30, 5));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "a (b) c");
  EXPECT_EQ(found->ticks, 42u);
  EXPECT_TRUE(found->gives_way);
  EXPECT_FALSE(process_ticks(stat_line(7, "a", 12, 30, 0))->gives_way);
  for (const char* broken : {"", "7 (a", "7 (a) S 1 2 3", "7 a) S"}) EXPECT_FALSE(process_ticks(broken)) << broken;
}

TEST(Neighbours, TheLargestAndThoseThatGiveWay) {
  const auto root = std::filesystem::temp_directory_path() / ("redline_neighbours_" + std::to_string(getpid()));
  const auto put = [&](int pid, const std::string& text) {
    std::filesystem::create_directories(root / "proc" / std::to_string(pid));
    std::ofstream(root / "proc" / std::to_string(pid) / "stat") << text;
  };
  put(11, stat_line(11, "small", 100, 0, 0));
  put(12, stat_line(12, "large", 100, 0, 0));
  put(13, stat_line(13, "idle", 100, 0, 5));
  put(getpid(), stat_line(getpid(), "self", 100, 0, 0));
  NeighbourWatch watch(root);
  const int64_t second = 1'000'000'000;
  EXPECT_FALSE(watch.look(10 * second));
  const auto ticks = static_cast<int>(sysconf(_SC_CLK_TCK));
  put(11, stat_line(11, "small", 100 + ticks / 10, 0, 0));
  put(12, stat_line(12, "large", 100 + ticks / 2, 0, 0));
  put(13, stat_line(13, "idle", 100 + ticks, 0, 5));
  put(getpid(), stat_line(getpid(), "self", 100 + 2 * ticks, 0, 0));
  EXPECT_FALSE(watch.look(10 * second + second / 10));  // too soon
  const auto& seen = watch.look(11 * second);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->largest, "large (12)");
  EXPECT_DOUBLE_EQ(seen->largest_cores, 0.5);
  EXPECT_DOUBLE_EQ(seen->yielding, 1.0);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace redline::device
