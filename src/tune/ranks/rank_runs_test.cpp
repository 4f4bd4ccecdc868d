#include "tune/ranks/rank_runs.h"

#include <gtest/gtest.h>

namespace redline::tune {
namespace {

measure::StepRow row(int64_t step, int64_t wall_ms, int64_t log_ms, double loss) {
  measure::StepRow made;
  made.step = step;
  made.wall_ns = wall_ms * 1000000;
  made.phase_ns[static_cast<size_t>(measure::Phase::Log)] = log_ms * 1000000;
  made.samples = 4;
  made.loss = loss;
  return made;
}

TEST(RankRuns, SpeedWithoutTheFirstStepsAndWithoutCadences) {
  measure::RunRecord record;
  record.steps = {row(1, 900, 0, 5), row(2, 500, 0, 4), row(3, 110, 10, 3), row(4, 100, 0, 2)};
  record.metrics = {{2, "val_loss", 7.0}, {4, "val_loss", 6.0}, {4, "loss", 1.0}};
  record.events = {{"", "loop.cost", {{"gradient_bytes", int64_t{2048}}}}};
  const RankRun run = read_rank_run(record, "val_loss", 2);
  EXPECT_NEAR(run.seconds_per_sample, 0.025, 1e-12);
  EXPECT_EQ(run.samples_per_step, 4);
  EXPECT_EQ(run.losses, (std::vector<double>{5, 4, 3, 2}));
  EXPECT_EQ(run.held_out, 6.0);
  EXPECT_EQ(run.gradient_bytes, 2048);
  EXPECT_EQ(run.failure, "");
}

TEST(RankRuns, ARecordWithoutStepsIsAFailure) {
  EXPECT_EQ(read_rank_run({}, "val_loss", 2).failure, "no step was made");
  measure::RunRecord short_one;
  short_one.steps = {row(1, 900, 0, 5)};
  EXPECT_EQ(read_rank_run(short_one, "val_loss", 2).seconds_per_sample, 0) << "nothing to time";
}

TEST(RankRuns, WordsOfARun) {
  const task::Registry registry;
  config::RequestSource source;
  source.file = "job.yaml";
  source.preset = "quick";
  source.overrides = {"a.b=1"};
  const TuneRequest with_source{registry, source, {}, 180, {}, 0, false, false, {}, {}, 0.05, false, {}, 0.01, {}, 0};
  std::vector<std::string> said;
  int started = 0;
  std::filesystem::create_directories(::testing::TempDir() + "rank_runs");
  const RankTuneRequest request{
      with_source, {1, 2}, ::testing::TempDir() + "rank_runs", [&](int ranks, const auto& words) {
        started = ranks;
        said = words;
        return 3;
      }};
  const RankRuns runs(request, 1, "val_loss");
  EXPECT_EQ(runs.run({{"trainer.devices", "2"}}, 30).failure, "the run ended with code 3");
  EXPECT_EQ(started, 2);
  const auto has = [&](const std::string& word) { return std::find(said.begin(), said.end(), word) != said.end(); };
  EXPECT_TRUE(has("job.yaml") && has("quick") && has("a.b=1") && has("trainer.devices=2") &&
              has("trainer.max_steps=30"));
  EXPECT_FALSE(has("trainer.devices=1"));
  runs.judged({}, 0, 17);
  EXPECT_EQ(started, 1);
  EXPECT_TRUE(has("seed=17") && has("model.optim.lr=1e-30") && has("trainer.max_steps=1"));
}

}  // namespace
}  // namespace redline::tune
