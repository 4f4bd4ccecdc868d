#include "report/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::report {
namespace {

using measure::Phase;

WatchedRun a_run() {
  WatchedRun run;
  run.name = "runs/mine/2026-11-18_10-00-00";
  run.state = "running";
  run.step = 120, run.max_steps = 320;
  run.speeds = {100, 200, 400, 380};
  run.loss = 2.5;
  run.seen.steps = 64, run.seen.step_seconds = 0.5, run.seen.samples_per_second = 380;
  run.seen.rss_bytes = int64_t{200} << 20;
  run.seen.phases[static_cast<size_t>(Phase::Forward)].share = 0.4;
  run.seen.phases[static_cast<size_t>(Phase::Backward)].share = 0.55;
  run.seen.phases[static_cast<size_t>(Phase::Wait)].share = 0.05;
  doctor::Surroundings around;
  around.seconds = 10, around.cores = 2, around.own = 1.1, around.others = 0.9, around.waited = 0.8,
  around.disturbed = 0.7;
  run.seen.surroundings = around;
  run.diagnosis = doctor::Diagnosis{};
  run.diagnosis->limit = doctor::Limit::Contended;
  run.diagnosis->detail = "CPU";
  run.diagnosis->scores = {{doctor::Limit::Contended, 0.72, "CPU", "", ""}};
  return run;
}

size_t columns_of(const std::string& line) {
  return static_cast<size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(Watch, EverythingIsThereAndFitsAnyWindow) {
  for (const int width : {24, 40, 60, 100, 200})
    for (const bool letters : {false, true}) {
      std::string all;
      for (const std::string& line : watch_lines(a_run(), width, letters)) {
        EXPECT_LE(columns_of(line), static_cast<size_t>(width)) << line;
        all += line + "\n";
      }
      EXPECT_THAT(all, testing::HasSubstr("380.0 samples/s"));
      if (width < 40) continue;
      for (const char* word : {"running", "step 120 of 320", "1 min 40 s left", "forward 40 %", "data wait 5 %",
                               "memory 200 MiB", "cores 1.1 of 2", "contended (CPU)", "loss 2.5"})
        EXPECT_THAT(all, testing::HasSubstr(word)) << width;
    }
}

TEST(Watch, ALineForAPipeHasNoEscapes) {
  WatchedRun run = a_run();
  run.name = "bad\x1b[31mname";
  const std::string line = watch_line(run);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_THAT(line, testing::HasSubstr("disturbed 70 %"));
  EXPECT_THAT(line, testing::HasSubstr("contended (CPU), without it +72 %"));
}

TEST(Watch, ARunThatEndedHasNoTimeLeft) {
  WatchedRun run = a_run();
  EXPECT_DOUBLE_EQ(run.seconds_left().value(), 100);
  run.state = "finished", run.ended = "max_steps";
  EXPECT_FALSE(run.seconds_left());
  EXPECT_THAT(watch_line(run), testing::HasSubstr("finished (max_steps)"));
  run.state = "running", run.seconds_since_written = 90;
  EXPECT_THAT(watch_line(run), testing::HasSubstr("no step for"));
  EXPECT_THAT(watch_line(WatchedRun{}), testing::HasSubstr("no steps yet"));
}

TEST(Watch, ASparklineShowsTheLastValues) {
  EXPECT_EQ(sparkline({1, 8, 4, 8}, 3, false), "#=#");
  EXPECT_EQ(sparkline({0, 0}, 3, false), "__");
  EXPECT_EQ(sparkline({}, 3, true), "");
  EXPECT_EQ(columns_of(sparkline({1, 2, 3, 4, 5}, 4, true)), 4u);
}

}  // namespace
}  // namespace redline::report
