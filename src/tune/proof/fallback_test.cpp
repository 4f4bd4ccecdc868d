#include "tune/proof/fallback.h"

#include <gtest/gtest.h>

namespace redline::tune {
namespace {

using config::Effect;
using Members = std::vector<size_t>;
using Reason = Rejection::Reason;

Contender make(const std::string& path, const std::string& value, Effect effect, const std::string& group,
               double ratio) {
  Contender contender{{path + " " + value, {{path, value}}, 0, 1e9, effect, group}, std::nullopt};
  if (ratio > 1.02) contender.better = ratio;
  return contender;
}

const std::vector<Contender> kEntries = {
    make("workers", "1", Effect::Nothing, "workers", 1.4),  make("batch", "16", Effect::Optimisation, "batch", 1.8),
    make("batch", "8", Effect::Optimisation, "batch", 1.6), make("batch", "4", Effect::Optimisation, "batch", 1.3),
    make("micro", "8", Effect::Numerics, "micro", 1.1),     make("buckets", "8", Effect::Order, "buckets", 1.0)};

TEST(PartsByEffect, WhatDoesLeastComesFirst) {
  using Parts = std::vector<Members>;
  EXPECT_EQ(parts_by_effect(kEntries, Members{1, 0, 5, 4}), (Parts{{0, 4}, {5}, {1}}));
  EXPECT_EQ(parts_by_effect(kEntries, Members{1}), (Parts{{1}}));
  EXPECT_EQ(parts_by_effect(kEntries, Members{}), Parts());
}

TEST(PartsByEffect, Within) {
  EXPECT_TRUE(within(Members{1, 0}, Members{0, 2, 1}));
  EXPECT_TRUE(within(Members{}, Members{}));
  EXPECT_FALSE(within(Members{1, 3}, Members{0, 2, 1}));
}

TEST(NextBest, AnotherValueTakesThePlaceOnceThenNoneDoes) {
  std::vector<Rejection> rejected = {{{0, 1}, Reason::Pairs}};
  EXPECT_EQ(next_best(kEntries, rejected, false), (Members{0, 2}));
  rejected.push_back({{0, 2}, Reason::Pairs});
  EXPECT_EQ(next_best(kEntries, rejected, false), (Members{0}));  // workers are innocent, four were never needed
}

TEST(NextBest, OnlyWhatCanBeToBlameGoes) {
  // Pairs failed: buckets or the batch, never the micro-batch that was proved by itself.
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 4, 5}, Reason::Pairs}}, false), (Members{0, 4}));
  // The step-by-step part failed: the micro-batch goes, the batch stays.
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 1, 4}, Reason::StepByStep}}, false), (Members{0, 1}));
}

TEST(NextBest, TheLastRoundIsForWhatIsBeyondSuspicion) {
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 1, 4, 5}, Reason::Pairs}}, true), (Members{0, 4}));
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{1, 5}, Reason::Pairs}}, true), Members());
}

TEST(NextBest, WhatDoesNotRunIsBlamedOnItsBatch) {
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 3, 5}, Reason::DoesNotRun}}, true), (Members{0, 5}));
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 1, 5}, Reason::DoesNotRun}}, false), (Members{0, 5, 2}));
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 5}, Reason::DoesNotRun}}, false), (Members{0}));
}

TEST(NextBest, AValueThatDidNotWinAloneIsNoReplacement) {
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{5}, Reason::Pairs}}, false), Members());
}

}  // namespace
}  // namespace redline::tune
