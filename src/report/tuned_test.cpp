#include "report/tuned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::report {
namespace {

using testing::HasSubstr;
using testing::Not;

// 100 instead of 50 samples per second, for a tuning of 30 seconds: even after 3,000 samples.
measure::TuneCard card_of_a_run(double samples) {
  measure::TuneCard card;
  card.break_even = {30, 0, 50, 100, samples, 10, 0.25};
  card.promised_ratio = {1.6, 2.5};
  return card;
}

TEST(Tuned, ALongRunCountsTheTuning) {
  EXPECT_THAT(
      tuned_text(card_of_a_run(6000), 1000),
      HasSubstr("Tuning cost 30 s and pays back after 3 k samples (300 of its steps); with it, the run finishes "
                "in 1 min 30 s (1 min 18 s to 1 min 45 s) instead of 2 min 00 s (1 min 36 s to 2 min 30 s)."));
}

TEST(Tuned, ARunTooShortForTheTuningIsToldSo) {
  const std::string text = tuned_text(card_of_a_run(1000), 1000);
  EXPECT_THAT(text, HasSubstr("Tuning cost 30 s and would pay back after 3 k samples (300 of its steps); this run has "
                              "1 k. From now on it takes 10 s (8 s to 12.5 s) instead of 20 s (16 s to 25 s), "
                              "the tuning not counted."));
  EXPECT_THAT(text, Not(HasSubstr("and pays back")));
}

TEST(Tuned, CompilingIsNamedAmongTheCosts) {
  measure::TuneCard card = card_of_a_run(6000);
  card.break_even.tuning_seconds = 10, card.break_even.compile_seconds = 20;
  EXPECT_THAT(tuned_text(card, 1000), HasSubstr("Tuning cost 30 s (20 s of it compiling) and pays back after 3 k"));
}

TEST(Tuned, WhatGainsNothingNeverPays) {
  measure::TuneCard card = card_of_a_run(1000);
  card.break_even.best_samples_per_second = 50;
  EXPECT_THAT(tuned_text(card, 1000), HasSubstr("Tuning cost 30 s; it does not pay back in this run."));
}

}  // namespace
}  // namespace redline::report
