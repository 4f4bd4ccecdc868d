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
