#include "measure/run_glance.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "core/file_ops.h"

namespace redline::measure {
namespace {

namespace fs = std::filesystem;

class Glance : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("glance_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write_run(const fs::path& run, int64_t steps) {
    RunWriter writer(run, false);
    writer.write_config(
        "trainer:\n  strategy:\n    max_steps: 7\n  max_steps: 500  # flag\n  max_epochs: null  # default\n  "
        "precision: "
        "bf16-mixed  # x\nname: \"mine\"  # y\ntask: example\n");
    for (int64_t i = 1; i <= steps; ++i) {
      StepRow row;
      row.step = i;
      row.epoch = i / 100;
      row.wall_ns = 10'000'000;
      row.samples = i > steps - kGlanceRows ? 8 : 1;  // what is before the end does not count
      row.loss = 1.0 / static_cast<double>(i);
      writer.step(row);
      if (i % 50 == 0) writer.metrics(i, {{"loss", row.loss}, {"val_loss", 2.0 * row.loss}});
    }
  }
  fs::path folder_;
};

TEST_F(Glance, ReadsTheEndOfARecord) {
  write_run(folder_ / "a/one", 300);
  const auto seen = glance_at_run(folder_ / "a/one", HeldFiles{});
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->phase, RunPhase::Stopped);
  EXPECT_EQ(seen->step, 300);
  EXPECT_EQ(seen->epoch, 3);
  EXPECT_EQ(seen->max_steps, 500);
  EXPECT_EQ(seen->max_epochs, -1);
  EXPECT_EQ(seen->name, "mine");
  EXPECT_EQ(seen->task, "example");
  EXPECT_EQ(seen->precision, "bf16-mixed");
  EXPECT_EQ(seen->rows.size(), static_cast<size_t>(kGlanceRows));
  EXPECT_NEAR(seen->samples_per_second(), 800.0, 1e-6);
  EXPECT_DOUBLE_EQ(seen->validation.at("val_loss"), 2.0 / 300);
  EXPECT_EQ(seen->validation.count("loss"), 0u);
}

TEST_F(Glance, SaysWhichRunsFinishedAndWhichAreHeld) {
  write_run(folder_ / "r", 3);
  write_file_atomic(folder_ / "r/run.json", R"({"format":"redline.run","version":1,"ended":"max_steps"})");
  EXPECT_EQ(glance_at_run(folder_ / "r", HeldFiles::now())->phase, RunPhase::Finished);
  const RunLock lock(folder_ / "r");
  EXPECT_TRUE(HeldFiles::now().holds(folder_ / "r/lock"));
  EXPECT_EQ(glance_at_run(folder_ / "r", HeldFiles::now())->phase, RunPhase::Running);
  EXPECT_FALSE(HeldFiles::now().holds(folder_ / "r/steps.bin"));
}

TEST_F(Glance, DamageIsNoRow) {
  write_run(folder_ / "r", 10);
  std::ofstream(folder_ / "r/steps.bin", std::ios::app | std::ios::binary) << "half a row";
  std::ofstream(folder_ / "r/run.json") << "{";
  std::ofstream(folder_ / "r/metrics.jsonl", std::ios::app) << "{\"torn";
  const auto seen = glance_at_run(folder_ / "r", HeldFiles{});
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->step, 10);
  fs::create_directories(folder_ / "none");
  EXPECT_FALSE(glance_at_run(folder_ / "none", HeldFiles{}));
  std::ofstream(folder_ / "none/steps.bin") << "";
  EXPECT_EQ(glance_at_run(folder_ / "none", HeldFiles{})->step, 0);
}

TEST_F(Glance, FindsRunsDownToADepth) {
  for (const char* name : {"b/2", "b/1", "a"}) write_run(folder_ / name, 1);
  fs::create_directories(folder_ / "b/1/inner");
  std::ofstream(folder_ / "b/1/inner/steps.bin") << "";
  fs::create_directories(folder_ / "x/y/z/deep");
  std::ofstream(folder_ / "x/y/z/deep/steps.bin") << "";
  EXPECT_EQ(find_runs(folder_), (std::vector<fs::path>{folder_ / "a", folder_ / "b/1", folder_ / "b/2"}));
  EXPECT_EQ(find_runs(folder_ / "a"), std::vector<fs::path>{folder_ / "a"});
  EXPECT_TRUE(find_runs(folder_ / "nowhere").empty());
}

TEST_F(Glance, EventsAtBothEndsWithoutWhatIsBetween) {
  const fs::path run = folder_ / "long";
  {
    RunWriter writer(run, false);
    writer.event("loop.cost", {{"computes_padding", false}});
    for (int64_t i = 0; i < 3000; ++i) writer.event("filler", {{"step", i}});
    writer.event("run.ended", {{"why", std::string("max_steps")}});
    writer.metrics(7, {{"loss", 2.0}});
  }
  const EdgeEvents events = edge_events(run, 4096);
  const auto has = [](const std::vector<Event>& list, const char* kind) {
    return std::ranges::any_of(list, [&](const Event& e) { return e.kind == kind; });
  };
  EXPECT_TRUE(has(events.first, "loop.cost"));
  EXPECT_FALSE(has(events.first, "run.ended"));
  EXPECT_TRUE(has(events.last, "run.ended"));
  EXPECT_FALSE(has(events.last, "loop.cost"));
  EXPECT_LT(events.last.size(), 100u);
  EXPECT_DOUBLE_EQ(last_metrics(run).at("loss"), 2.0);
  // Cut by a kill in the middle of a line.
  fs::resize_file(run / "events.jsonl", fs::file_size(run / "events.jsonl") - 9);
  EXPECT_FALSE(has(edge_events(run, 4096).last, "run.ended"));
  EXPECT_TRUE(has(edge_events(run, 4096).last, "filler"));
  EXPECT_TRUE(edge_events(folder_ / "missing").last.empty());
}

}  // namespace
}  // namespace redline::measure
