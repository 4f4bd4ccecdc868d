#include "report/parts/tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/parts/curves.h"

namespace redline::report {
namespace {

using testing::HasSubstr;

RunPart small_run() {
  RunPart run;
  run.record.config_yaml =
      "model: {train_ds: {batch_size: 4}}\ntrainer: {accumulate_grad_batches: 2, precision: bf16-mixed}\ntask: "
      "example\n";
  for (int i = 0; i < 100; ++i) {
    measure::StepRow row;
    row.step = i + 1;
    row.wall_ns = 20'000'000;
    row.samples = 8;
    row.micro_batches = 2;
    row.loss = i < 95 ? 5.0 : 2.0;
    row.rss_bytes = 3 << 20;
    run.record.steps.push_back(row);
  }
  run.seen = doctor::observe(run.record.steps);
  run.record.events = {{"2026-01-02T03:04:05Z", "run.started", {}},
                       {"2026-01-02T03:05:05Z", "run.ended", {{"why", std::string("max_steps")}}}};
  run.record.metrics = {{50, "val_loss", 1.5}, {100, "val_loss", 1.75}};
  return run;
}

TEST(Tiles, SayWhatBecameOfARun) {
  const std::vector<Tile> tiles = run_tiles(small_run());
  ASSERT_EQ(tiles.size(), 6u);
  EXPECT_EQ(tiles[0].title, "finished");
  EXPECT_THAT(tiles[0].detail, HasSubstr("max_steps; started 2026-01-02 03:04"));
  EXPECT_EQ(tiles[1].value, "2 → 1.75");
  EXPECT_EQ(tiles[1].detail, "best 1.5 at step 50");
  EXPECT_EQ(tiles[2].value, "2 s");
  EXPECT_EQ(tiles[3].detail, "median 400 (400 to 400)");
  EXPECT_EQ(tiles[4].value, "4 × 2");
  EXPECT_EQ(tiles[4].detail, "bf16-mixed, example");
  EXPECT_EQ(tiles[5].detail, "process 3 MiB");
}

TEST(Tiles, ARunThatWasStoppedOrIsStillGoing) {
  RunPart run = small_run();
  run.record.events[1].fields = {{"why", std::string("SIGINT")}};
  EXPECT_EQ(run_tiles(run)[0].title, "stopped");
  EXPECT_FALSE(run_tiles(run)[0].good);
  run.record.events.push_back({"2026-01-02T04:00:00Z", "run.resumed", {}});
  EXPECT_THAT(run_tiles(run)[0].detail, HasSubstr("not ended"));
  EXPECT_FALSE(run_tiles(RunPart{}).empty()) << "a record without steps has tiles too";
}

TEST(Curves, SmoothingFollowsTheValues) {
  const std::vector<double> flat = smoothed(std::vector<double>(10, 3.0), 5);
  for (const double value : flat) EXPECT_NEAR(value, 3.0, 1e-12);
  const std::vector<double> step = smoothed({0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, 3);
  EXPECT_LT(step[4], 0.6);
  EXPECT_GT(step[9], 0.98);
  EXPECT_NEAR(smoothed({NAN, 2.0}, 4)[1], 2.0, 1e-12);
}

}  // namespace
}  // namespace redline::report
