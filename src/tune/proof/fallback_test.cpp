#include "tune/proof/fallback.h"

#include <gtest/gtest.h>

namespace redline::tune {
namespace {

using config::Effect;
using Members = std::vector<size_t>;
using Reason = Rejection::Reason;

Entry make(const std::string& path, const std::string& value, Effect effect, const std::string& group, double ratio) {
  Entry entry{{path + " " + value, {{path, value}}, 0, 1e9, effect, group}};
  entry.alone = measure::RatioEstimate{ratio, {ratio, ratio}, 8};
  entry.state = ratio > 1.02 ? EntryState::Better : EntryState::NotBetter;
  return entry;
}

const std::vector<Entry> kEntries = {
    make("workers", "1", Effect::Nothing, "workers", 1.4),  make("batch", "16", Effect::Optimisation, "batch", 1.8),
    make("batch", "8", Effect::Optimisation, "batch", 1.6), make("batch", "4", Effect::Optimisation, "batch", 1.3),
    make("micro", "8", Effect::Numerics, "micro", 1.1),     make("buckets", "8", Effect::Order, "buckets", 1.0)};

TEST(NextBest, AnotherValueTakesThePlaceOnceThenNoneDoes) {
  std::vector<Rejection> rejected = {{{0, 1}, Reason::Curve}};
  EXPECT_EQ(next_best(kEntries, rejected, false), (Members{0, 2}));
  rejected.push_back({{0, 2}, Reason::Curve});
  EXPECT_EQ(next_best(kEntries, rejected, false), (Members{0}));  // workers are innocent, four were never needed
}

TEST(NextBest, OnlyWhatCanBeToBlameGoes) {
  // The curve failed: buckets or the batch, never the micro-batch that was proved by itself.
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 4, 5}, Reason::Curve}}, false), (Members{0, 4}));
  // The step-by-step part failed: the micro-batch goes, the batch stays.
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 1, 4}, Reason::StepByStep}}, false), (Members{0, 1}));
}

TEST(NextBest, TheLastRoundIsForWhatIsBeyondSuspicion) {
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 1, 4, 5}, Reason::Curve}}, true), (Members{0, 4}));
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{1, 5}, Reason::Curve}}, true), Members());
}

TEST(NextBest, WhatDoesNotRunIsBlamedOnItsBatch) {
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 3, 5}, Reason::DoesNotRun}}, true), (Members{0, 5}));
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 1, 5}, Reason::DoesNotRun}}, false), (Members{0, 5, 2}));
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{0, 5}, Reason::DoesNotRun}}, false), (Members{0}));
}

TEST(NextBest, AValueThatDidNotWinAloneIsNoReplacement) {
  EXPECT_EQ(next_best(kEntries, std::vector<Rejection>{{{5}, Reason::Curve}}, false), Members());
}

}  // namespace
}  // namespace redline::tune
