#include "measure/paired_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"

namespace redline::measure {
namespace {

// A reference that falls from 10 to 6, whose candidate is worse by `worse` with a spread between pairs.
std::vector<PairedLosses> draw_pairs(KeyedStream& draw, int count, double worse, double spread, double level = 10) {
  std::vector<PairedLosses> pairs;
  for (int i = 0; i < count; ++i) {
    const double start = level + 0.1 * draw.normal(), reference = start - 4 + 0.1 * draw.normal();
    pairs.push_back({start, reference, reference + worse + spread * draw.normal()});
  }
  return pairs;
}

// The verdict of a whole sequence of looks, and how many pairs it took.
PairedJudgement run_design(KeyedStream& draw, const PairedDesign& design, double worse, double spread) {
  const std::vector<PairedLosses> all = draw_pairs(draw, design.most_pairs, worse, spread);
  for (int n = 0;;) {
    n += next_look(n, design.most_pairs);
    const PairedJudgement judgement = judge_pairs(std::span(all).first(static_cast<size_t>(n)), design);
    if (judgement.verdict != PairedVerdict::Undecided) return judgement;
    if (next_look(n, design.most_pairs) == 0) {
      ADD_FAILURE() << "the last look decides";
      return judgement;
    }
  }
}

struct Rates {
  double not_worse = 0, worse = 0, pairs = 0, power = 0;
};
Rates simulate(const PairedDesign& design, double worse, double spread, int repeats = 4000, bool with_power = false) {
  KeyedStream draw(11, static_cast<uint64_t>(1e6 * (worse + 10)), static_cast<uint64_t>(1e6 * spread), 0);
  Rates rates;
  for (int i = 0; i < repeats; ++i) {
    PairedJudgement one = run_design(draw, design, worse, spread);
    if (with_power) add_power(one, design);
    rates.not_worse += one.verdict == PairedVerdict::NotWorse;
    rates.worse += one.verdict == PairedVerdict::Worse;
    rates.pairs += one.pairs;
    rates.power += one.power;
  }
  for (double* sum : {&rates.not_worse, &rates.worse, &rates.pairs, &rates.power}) *sum /= repeats;
  return rates;
}

// Exactly at the margin (5 % of 4) is the hardest case that is worse.
TEST(PairedTest, AtTheMarginItErrsInFivePercentWhateverTheSpread) {
  for (const int most : {3, 5, 8, 12})
    for (const double spread : {0.02, 0.1, 0.4}) {
      PairedDesign design;
      design.most_pairs = most;
      const Rates rates = simulate(design, 0.2, spread);
      EXPECT_LE(rates.not_worse, 0.062) << most << " pairs, spread " << spread;  // 5 % and three errors of 4000
      EXPECT_LE(rates.worse, 0.062) << most << " pairs, spread " << spread;
    }
}

// Up to four candidates, each either at the margin or without any effect; false certificates of the whole sequence.
double false_certificates(const std::vector<bool>& worse, int repeats) {
  KeyedStream draw(17, worse.size(), static_cast<uint64_t>(std::ranges::count(worse, true)), worse.front());
  int wrong = 0;
  for (int i = 0; i < repeats; ++i) {
    ErrorShares shares;
    bool any = false;
    for (const bool one : worse) {
      PairedDesign design;
      design.error_rate *= shares.share();
      const bool shown = run_design(draw, design, one ? 0.2 : 0, 0.1).verdict == PairedVerdict::NotWorse;
      any = any || (shown && one);
      shown ? shares.shown() : shares.not_shown();
    }
    wrong += any;
  }
  return static_cast<double>(wrong) / repeats;
}

TEST(PairedTest, CandidatesInTurnShareTheError) {
  for (const std::vector<bool>& worse : std::vector<std::vector<bool>>{
           {true, true, true, true}, {false, true, true, true}, {false, false, true}, {true, false, true}})
    EXPECT_LE(false_certificates(worse, 4000), 0.061);  // 5 % and three errors of 4000
  ErrorShares shares;
  const double first = shares.share();
  shares.shown();
  const double after_shown = shares.share();
  EXPECT_GT(after_shown, first);
  shares.not_shown();
  EXPECT_LT(shares.share(), after_shown - first);
  for (int i = 0; i < 9; ++i) shares.not_shown();
  EXPECT_GT(shares.share(), 0);
  // Four that are all shown have the whole between them, and no more.
  ErrorShares lucky;
  for (int i = 0; i < 3; ++i) lucky.shown();
  EXPECT_LE(lucky.share(), 1);
}

TEST(PairedTest, PowerIsWhatIsPrinted) {
  PairedDesign design;
  for (const double spread : {0.15, 0.22, 0.3}) {
    const Rates rates = simulate(design, 0, spread, 1000, /*with_power=*/true);
    // The printed power is that of the last look alone, with the spread as it was seen: a little below.
    EXPECT_GE(rates.not_worse, rates.power - 0.05) << spread;
    EXPECT_LE(rates.not_worse, rates.power + 0.15) << spread;
  }
  EXPECT_GE(simulate(design, 0, 0.05).not_worse, 0.999);
}

TEST(PairedTest, ClearCasesEndEarly) {
  PairedDesign design;
  const Rates same = simulate(design, 0, 0.02, 500), stuck = simulate(design, 4, 0.3, 500);
  EXPECT_LT(same.pairs, 4.5);
  EXPECT_EQ(stuck.not_worse, 0);
  EXPECT_LT(stuck.pairs, 4);
  // Three times the margin worse, with a spread as large: seldom called not worse, mostly given up or called worse.
  const Rates worse = simulate(design, 0.6, 0.2, 1000);
  EXPECT_EQ(worse.not_worse, 0);
  EXPECT_GT(worse.worse, 0.8);
}

TEST(PairedTest, LossesMayBeNegativeOrZero) {
  KeyedStream draw(3, 0, 0, 0);
  PairedDesign design;
  design.most_pairs = 5;
  for (const double level : {10.0, 2.0, 0.0, -50.0}) {
    const auto alike = draw_pairs(draw, 5, 0, 0.01, level), worse = draw_pairs(draw, 5, 1, 0.01, level);
    EXPECT_EQ(judge_pairs(alike, design).verdict, PairedVerdict::NotWorse) << level;
    EXPECT_EQ(judge_pairs(worse, design).verdict, PairedVerdict::Worse) << level;
  }
}

TEST(PairedTest, AReferenceThatLearnsNothingShowsNothing) {
  KeyedStream draw(4, 0, 0, 0);
  std::vector<PairedLosses> pairs;
  for (int i = 0; i < 12; ++i) {
    const double loss = 6 + 0.1 * draw.normal();
    pairs.push_back({6 + 0.1 * draw.normal(), loss, loss});  // the candidate is the reference itself
  }
  const PairedJudgement judgement = judge_pairs(pairs, {});
  EXPECT_FALSE(judgement.learned);
  EXPECT_EQ(judgement.verdict, PairedVerdict::NotShown);
  for (PairedLosses& pair : pairs) pair.start = pair.reference;  // not even noise
  EXPECT_EQ(judge_pairs(pairs, {}).verdict, PairedVerdict::NotShown);
  for (PairedLosses& pair : pairs) pair.start = pair.reference - 1;  // it unlearns
  EXPECT_EQ(judge_pairs(pairs, {}).verdict, PairedVerdict::NotShown);
}

TEST(PairedTest, ACandidateThatIsNotANumberIsWorse) {
  const std::vector<PairedLosses> one = {{6, 5, NAN}};
  EXPECT_EQ(judge_pairs(one, {}).verdict, PairedVerdict::Worse);
  EXPECT_TRUE(judge_pairs(one, {}).not_finite);
}

TEST(PairedTest, WhatShouldChangeNothingMustNotLearnMoreEither) {
  KeyedStream draw(5, 0, 0, 0);
  const auto better = draw_pairs(draw, 12, -1, 0.1);
  PairedDesign design;
  EXPECT_EQ(judge_pairs(better, design).verdict, PairedVerdict::NotWorse);
  design.must_be_alike = true;
  EXPECT_EQ(judge_pairs(better, design).verdict, PairedVerdict::Better);
  EXPECT_EQ(judge_pairs(draw_pairs(draw, 12, 0, 0.05), design).verdict, PairedVerdict::NotWorse);
}

// Better by more than the margin with a wide spread: early looks see that it is not worse before they see that it is
// better.
TEST(PairedTest, WhatMustBeAlikeIsShownOnBothSides) {
  PairedDesign design, alike;
  alike.must_be_alike = true;
  EXPECT_GT(simulate(design, -0.44, 0.25, 1000).not_worse, 0.99);
  EXPECT_LE(simulate(alike, -0.44, 0.25, 1000).not_worse, 0.01);
  EXPECT_LE(simulate(alike, -0.2, 0.1).not_worse, 0.062);  // exactly at the margin: 5 % and three errors of 4000
  EXPECT_LE(simulate(alike, 0.2, 0.1).not_worse, 0.062);
  for (const double spread : {0.12, 0.18}) {
    const Rates rates = simulate(alike, 0, spread, 1000, /*with_power=*/true);
    EXPECT_GE(rates.not_worse, rates.power - 0.05) << spread;
    EXPECT_LE(rates.not_worse, rates.power + 0.2) << spread;
  }
}

TEST(PairedTest, LooksAreFewAndKnown) {
  EXPECT_EQ(next_look(0, 12), 3);
  EXPECT_EQ(next_look(3, 12), 2);
  EXPECT_EQ(next_look(4, 12), 1);
  EXPECT_EQ(next_look(12, 12), 0);
  EXPECT_EQ(next_look(5, 5), 0);
  EXPECT_EQ(most_pairs_within(2), 0);
  EXPECT_EQ(most_pairs_within(7), 5);
  EXPECT_EQ(most_pairs_within(99), 12);
  EXPECT_EQ(judge_pairs(std::vector<PairedLosses>(4, {6, 5, 5}), {}).verdict, PairedVerdict::Undecided);
  EXPECT_EQ(judge_pairs(std::vector<PairedLosses>(3, {6, 5, 5}), {}).verdict, PairedVerdict::NotWorse);
}

}  // namespace
}  // namespace redline::measure
