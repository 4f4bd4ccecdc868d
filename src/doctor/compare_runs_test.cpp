#include "doctor/compare_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/philox.h"

namespace redline::doctor {
namespace {

measure::RunRecord make_run(double forward_ms, double noise, uint64_t seed, int steps = 200, int samples = 8) {
  measure::RunRecord run;
  run.directory = "runs/x";
  run.config_yaml = "name: n\ntask: speech_ssl  # file:1\n";
  for (int i = 0; i < steps; ++i) {
    KeyedStream draw(seed, 0, static_cast<uint64_t>(i), 2);
    measure::StepRow row;
    row.step = i + 1;
    row.samples = samples;
    row.phase_ns[static_cast<size_t>(measure::Phase::Forward)] =
        static_cast<int64_t>(forward_ms * 1e6 * std::exp(noise * draw.normal()));
    row.phase_ns[static_cast<size_t>(measure::Phase::Backward)] =
        static_cast<int64_t>(10e6 * std::exp(noise * draw.normal()));
    for (int64_t ns : row.phase_ns) row.wall_ns += ns;
    run.steps.push_back(row);
  }
  return run;
}

TEST(CompareRuns, ThreePreparedPairs) {
  EXPECT_EQ(compare_runs(make_run(10, 0.05, 1), make_run(10, 0.05, 2), 0.03).result, GateResult::NoRegression);
  const RunComparison slower = compare_runs(make_run(10, 0.05, 1), make_run(13, 0.05, 2), 0.03);
  EXPECT_EQ(slower.result, GateResult::Regression);
  ASSERT_FALSE(slower.moved.empty());
  EXPECT_EQ(slower.moved[0].part.name(), "forward");
  EXPECT_THAT(slower.sentence, testing::HasSubstr("mostly in forward"));
  const RunComparison noisy = compare_runs(make_run(10, 0.8, 1, 12), make_run(10, 0.8, 2, 12), 0.03);
  EXPECT_EQ(noisy.result, GateResult::TooNoisy);
  EXPECT_GT(noisy.detectable_loss, 0.03);
}

// A neighbour that came half-way is not the job's fault.
TEST(CompareRuns, ABusyMachineIsNotBlamedOnTheJob) {
  const auto busy_from = [](measure::RunRecord run, int64_t first) {
    measure::SurroundingsWindow quiet, busy;
    quiet.first_step = 1, quiet.last_step = first - 1;
    busy.first_step = first, busy.last_step = 200;
    quiet.cores = busy.cores = 2;
    quiet.seconds = 0.01 * static_cast<double>(first), busy.seconds = 2 - quiet.seconds + 1e-9;
    quiet.others = 0.0, quiet.waited = 0.0;
    busy.others = 1.0, busy.waited = 0.5;
    for (const auto& window : {quiet, busy})
      run.events.push_back({"", measure::kSurroundingsEvent, measure::surroundings_fields(window)});
    return run;
  };
  measure::RunRecord half = make_run(10, 0.05, 2);
  for (measure::StepRow& row : half.steps)
    if (row.step > 40) row.wall_ns *= 2;
  EXPECT_EQ(compare_runs(make_run(10, 0.05, 1), half, 0.03).result, GateResult::Regression);
  const RunComparison known = compare_runs(make_run(10, 0.05, 1), busy_from(half, 41), 0.03);
  EXPECT_EQ(known.result, GateResult::NoRegression) << known.sentence;
  EXPECT_THAT(known.sentence, testing::HasSubstr("The machine was busy for 80 % of the second run"));
  const RunComparison all = compare_runs(make_run(10, 0.05, 1), busy_from(make_run(20, 0.05, 2), 5), 0.03);
  EXPECT_EQ(all.result, GateResult::TooNoisy) << all.sentence;
  EXPECT_THAT(all.sentence, testing::HasSubstr("too busy to blame the job"));
}

TEST(CompareRuns, AGainIsNoRegression) {
  EXPECT_EQ(compare_runs(make_run(13, 0.05, 1), make_run(10, 0.05, 2), 0.03).result, GateResult::NoRegression);
}

TEST(CompareRuns, RefusesWhatCannotBeCompared) {
  measure::RunRecord other = make_run(10, 0.05, 1);
  other.config_yaml = "task: sequence_vae\n";
  EXPECT_THROW(compare_runs(make_run(10, 0.05, 1), other, 0.03), DataError);
  EXPECT_THROW(compare_runs(make_run(10, 0.05, 1), make_run(10, 0.05, 1, 200, 16), 0.03), DataError);
  EXPECT_THROW(compare_runs(make_run(10, 0.05, 1), make_run(10, 0.05, 1, 0), 0.03), DataError);
}

}  // namespace
}  // namespace redline::doctor
