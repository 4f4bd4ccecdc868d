#include "doctor/observation.h"

#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

measure::StepRow make_row(double forward_ms, double wait_ms, bool validates = false) {
  measure::StepRow row;
  row.phase_ns[static_cast<size_t>(measure::Phase::Forward)] = static_cast<int64_t>(forward_ms * 1e6);
  row.phase_ns[static_cast<size_t>(measure::Phase::Wait)] = static_cast<int64_t>(wait_ms * 1e6);
  if (validates) row.phase_ns[static_cast<size_t>(measure::Phase::Validate)] = 10'000'000;
  for (int64_t ns : row.phase_ns) row.wall_ns += ns;
  row.samples = 8;
  row.micro_batches = 2;
  row.items = 60;
  row.padded_items = 80;
  return row;
}

TEST(Observation, SharesAddUpAndRatesCountBothWays) {
  const std::vector<measure::StepRow> rows = {make_row(500, 0), make_row(8, 2), make_row(8, 2, true)};
  const Observation seen = observe(rows, 1);
  EXPECT_EQ(seen.steps, 2);
  EXPECT_NEAR(seen.step_seconds, 0.015, 1e-12);
  EXPECT_NEAR(seen.samples_per_second, 16 / 0.030, 1e-6);
  EXPECT_NEAR(seen.iterations_per_second, 4 / 0.030, 1e-6);
  EXPECT_NEAR(seen.padding_share, 0.25, 1e-12);
  double shares = 0;
  for (const auto& phase : seen.phases) shares += phase.share;
  EXPECT_NEAR(shares, 1.0, 1e-12);
  EXPECT_EQ(seen.phase(measure::Phase::Validate).occurrences, 1);
  EXPECT_NEAR(seen.phase(measure::Phase::Validate).seconds_per_step, 0.005, 1e-12);
  EXPECT_NEAR(seen.phase(measure::Phase::Validate).seconds_per_occurrence, 0.010, 1e-12);
}

// The same tenth of the time: spread over the run it is known well, in one place hardly at all.
TEST(Observation, AShareIsKnownAsWellAsItComesBack) {
  std::vector<measure::StepRow> steady, hiccup;
  for (int i = 0; i < 100; ++i) {
    steady.push_back(make_row(9, i % 2 == 0 ? 1.2 : 0.8));
    hiccup.push_back(make_row(9, i == 37 ? 100 : 0));
  }
  const PhaseSummary every_step = observe(steady, 0).phase(measure::Phase::Wait);
  const PhaseSummary once = observe(hiccup, 0).phase(measure::Phase::Wait);
  EXPECT_NEAR(every_step.share, 0.1, 1e-3);
  EXPECT_NEAR(once.share, 0.1, 1e-3);
  EXPECT_LT(every_step.share_error, 0.002);
  EXPECT_GT(once.share_error, 0.06);
}

TEST(Observation, ACadenceIsKnownByItsOccurrences) {
  const auto error = [](int every) {
    std::vector<measure::StepRow> rows;
    for (int i = 0; i < 100; ++i) rows.push_back(make_row(9, 0, i % every == every / 2));
    const PhaseSummary validations = observe(rows, 0).phase(measure::Phase::Validate);
    return validations.share_error / validations.share;
  };
  EXPECT_GT(error(100), 0.6);  // one: there might as well have been none, or two
  EXPECT_NEAR(error(10), 0.041, 1e-3);
  EXPECT_LT(error(2), 0.01);
}

TEST(Observation, StepsThatWereNotDividedCountOnlyByTheirLength) {
  std::vector<measure::StepRow> rows = {make_row(8, 2), make_row(0, 0), make_row(6, 2)};
  rows[1].phase_ns[static_cast<size_t>(measure::Phase::Other)] = rows[1].wall_ns = 9'000'000;
  rows[1].flags = measure::kStepUntimed;
  const Observation seen = observe(rows, 0);
  EXPECT_NEAR(seen.step_seconds, 0.009, 1e-12);
  EXPECT_NEAR(seen.phase(measure::Phase::Forward).seconds_per_step, 0.007, 1e-12);
  EXPECT_NEAR(seen.phase(measure::Phase::Forward).share, 14.0 / 18.0, 1e-12);
  EXPECT_EQ(seen.phase(measure::Phase::Other).share, 0.0);
}

TEST(Observation, CadencesAreAmortisedOverTheRun) {
  Observation seen;
  seen.steps = 10;
  seen.samples_per_step = 8;
  seen.micro_batches_per_step = 1;
  seen.phases[static_cast<size_t>(measure::Phase::Forward)].seconds_per_step = 0.09;
  price_cadences(seen, {0, 0, 1.0, 0}, {0, 0, 0.01, 0});
  EXPECT_NEAR(seen.step_seconds, 0.1, 1e-12);
  EXPECT_NEAR(seen.phase(measure::Phase::Validate).share, 0.1, 1e-12);
  EXPECT_NEAR(seen.samples_per_second, 80, 1e-9);
  EXPECT_NEAR(seen.bare_step_seconds(), 0.09, 1e-12);
}

TEST(Observation, OwnTimersAreTakenOut) {
  Observation seen;
  seen.steps = 10;
  seen.micro_batches_per_step = 2;
  seen.phases[static_cast<size_t>(measure::Phase::Forward)].seconds_per_step = 0.001;
  seen.phases[static_cast<size_t>(measure::Phase::Other)].seconds_per_step = 5e-6;
  subtract_measuring(seen, 100e-9);
  EXPECT_NEAR(seen.measuring_seconds, 1.1e-6, 1e-12);
  EXPECT_NEAR(seen.step_seconds, 0.001 + 3.9e-6, 1e-12);
}

TEST(Observation, FewRowsAreUsedWhole) {
  EXPECT_EQ(observe(std::vector<measure::StepRow>{make_row(1, 0)}).steps, 1);
  EXPECT_EQ(observe({}).steps, 0);
}

}  // namespace
}  // namespace redline::doctor
