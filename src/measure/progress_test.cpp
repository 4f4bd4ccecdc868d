#include "measure/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "core/log.h"

namespace redline::measure {
namespace {

ProgressState full_state() {
  ProgressState state;
  state.done = 370;
  state.total = 1000;
  state.seconds_left = 95;
  state.samples_per_second = 124.3;
  state.steps_per_second = 7.77;
  state.loss = 1.23456;
  state.data_wait_share = 0.031;
  state.process_bytes = uint64_t{3} << 29;
  return state;
}

TEST(Progress, FormatsAndDropsTheLeastImportant) {
  const ProgressState state = full_state();
  const std::string everything = format_progress(state, 0, false);
  EXPECT_EQ(everything, "train  37%  370/1000  " + everything.substr(22, everything.find("  124") - 22) +
                            "  124 samples/s  7.77 steps/s  loss 1.235  wait 3%  process 1.5 GiB");
  EXPECT_THAT(everything, testing::HasSubstr(" left"));
  EXPECT_THAT(format_progress(state, 0, true), testing::HasSubstr("37%  [#######.............]  370/1000"));
  const struct {
    int width;
    std::vector<const char*> has, lacks;
  } cases[] = {
      {200, {"[#", "process", "steps/s", "wait", "loss", "samples/s", "left", "370/1000", "train"}, {}},
      {110, {"process", "steps/s", "wait", "loss", "samples/s", "left"}, {"[#"}},
      {80, {"wait", "loss", "samples/s", "left"}, {"[#", "process"}},
      {50, {"left", "370/1000", "37%", "train"}, {"process", "steps/s", "wait"}},
      {20, {"37%", "370/1000"}, {"left", "loss"}},
      {10, {"37%"}, {"train"}},
      {3, {"37%"}, {}},
  };
  for (const auto& c : cases) {
    const std::string line = format_progress(state, c.width, true);
    EXPECT_LE(line.size(), static_cast<size_t>(c.width)) << line;
    for (const char* part : c.has) EXPECT_THAT(line, testing::HasSubstr(part)) << c.width;
    for (const char* part : c.lacks) EXPECT_THAT(line, testing::Not(testing::HasSubstr(part))) << c.width;
  }
}

TEST(Progress, NeverWiderThanAsked) {
  const ProgressState state = full_state();
  for (int width = 1; width <= 160; ++width) {
    for (bool bar : {false, true}) EXPECT_LE(format_progress(state, width, bar).size(), static_cast<size_t>(width));
  }
}

TEST(Progress, EdgeValues) {
  ProgressState state;
  state.done = 12;
  EXPECT_EQ(format_progress(state, 0, true), "train  step 12") << "an unknown total has no percentage";
  state.total = 1000;
  state.done = 999;
  EXPECT_THAT(format_progress(state, 0, false), testing::HasSubstr("99%")) << "not yet 100 %";
  state.done = 1000;
  EXPECT_THAT(format_progress(state, 0, true), testing::HasSubstr("100%  [####################]"));
  state.done = 2000;
  EXPECT_THAT(format_progress(state, 0, true), testing::HasSubstr("100%"));
  state.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(format_progress(state, 0, false), testing::HasSubstr("loss nan"));
  state.label = "val\x1b[31m";
  EXPECT_EQ(format_progress(state, 0, false).find('\x1b'), std::string::npos);
}

std::string drain(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  char chunk[4096];
  for (ssize_t got = 0; (got = read(fd, chunk, sizeof(chunk))) > 0;) text.append(chunk, static_cast<size_t>(got));
  return text;
}

TEST(Progress, PlainLinesWithoutATerminal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    ProgressOptions options;
    options.fd = ends[1];
    ProgressLine line(options);
    const int64_t second = 1'000'000'000;
    EXPECT_TRUE(line.update(full_state(), 0));
    EXPECT_FALSE(line.update(full_state(), 5 * second));
    EXPECT_TRUE(line.update(full_state(), 10 * second));
    line.finish(full_state());
    line.finish(full_state());
  }
  const std::string text = drain(ends[0]);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  close(ends[0]);
  close(ends[1]);
}

TEST(Progress, RedrawsOnATerminalAtMostTenTimesASecond) {
  int master = -1, slave = -1;
  winsize size{};
  size.ws_col = 40;
  size.ws_row = 10;
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
  int drawn = 0;
  {
    ProgressOptions options;
    options.fd = slave;
    options.terminal = true;
    ProgressLine line(options);
    for (int64_t ms = 0; ms < 1000; ++ms) drawn += line.update(full_state(), ms * 1'000'000) ? 1 : 0;
    EXPECT_EQ(drawn, 10);
    log_info("a log line clears the progress and draws it again");
    line.finish(full_state());
  }
  const std::string text = drain(master);
  // 10 updates, one clear and redraw around the log line, one finish.
  size_t clears = 0;
  for (size_t at = text.find("\r\033[K"); at != std::string::npos; at = text.find("\r\033[K", at + 1)) ++clears;
  EXPECT_EQ(clears, 12U);
  size_t begin = 0;
  while ((begin = text.find("\033[K", begin)) != std::string::npos) {
    begin += 3;
    EXPECT_LE(std::min(text.find_first_of("\r\n", begin), text.size()) - begin, 2U * 39U);
  }
  EXPECT_THAT(text, testing::HasSubstr("370/1000"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("process"))) << "40 columns have no room for it";
  close(master);
  close(slave);
}

}  // namespace
}  // namespace redline::measure
