#include "doctor/rules/piece_costs.h"

#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

measure::StepRow step_row(int micro_batches, double items, double padded_items, double seconds) {
  measure::StepRow row;
  row.micro_batches = micro_batches;
  row.samples = 16;
  row.items = static_cast<int64_t>(items);
  row.padded_items = static_cast<int64_t>(padded_items);
  row.phase_ns[static_cast<size_t>(measure::Phase::Forward)] = static_cast<int64_t>(1e9 * seconds);
  return row;
}

TEST(PieceCosts, TwoSizesTellThePieceFromItsItemsAndAHeldUpStepIsLeftOut) {
  std::vector<measure::StepRow> rows;
  for (int i = 0; i < 16; ++i) {
    const double piece_items = i < 12 ? 200 + i % 3 : 800 + i % 3;
    const int pieces = i < 12 ? 8 : 2;
    const double held_up = i == 5 ? 3.0 : 1.0;
    rows.push_back(
        step_row(pieces, pieces * piece_items, pieces * piece_items, held_up * pieces * (0.01 + 0.0002 * piece_items)));
  }
  PieceCosts o = fit_pieces(rows, true);
  EXPECT_NEAR(o.piece_seconds, 0.01, 1e-4);
  EXPECT_NEAR(o.item_seconds, 0.0002, 1e-6);
}

TEST(PieceCosts, PaddingThatCostsNothingIsSeen) {
  std::vector<measure::StepRow> rows;
  for (int i = 0; i < 30; ++i) {
    const int pieces = i < 20 ? 8 : 2;
    const double items = 16 * (90 + i % 7), padding = (i < 20 ? 100 : 400) * (1 + i % 5);
    rows.push_back(step_row(pieces, items, items + padding, 0.01 * pieces + 0.0002 * items));
  }
  PieceCosts o = fit_pieces(rows, true);
  EXPECT_NEAR(o.piece_seconds, 0.01, 1e-4);
  EXPECT_NEAR(o.item_seconds, 0.0002, 1e-6);
  EXPECT_NEAR(o.padding_seconds, 0.0, 1e-6);
  // Ten steps settle nothing, but a task that packs says so.
  o = fit_pieces(std::span(rows).first(10), false);
  EXPECT_EQ(o.padding_seconds, 0.0);
}

TEST(PieceCosts, TheFixedCostOfAMicroBatchIsFitted) {
  std::vector<measure::StepRow> rows;
  for (int i = 0; i < 10; ++i) {
    const double padded = 4 * (100 + 20 * i);
    rows.push_back(step_row(4, padded / 2, padded, 4 * 0.03 + 0.0005 * padded));
  }
  PieceCosts o = fit_pieces(rows, true);
  EXPECT_NEAR(o.piece_seconds, 0.03, 1e-4);
  EXPECT_NEAR(o.item_seconds, 0.0005, 1e-6);
}

TEST(PieceCosts, BucketsThatWereRacedSayWhatPaddingCosts) {
  // Per sample 100 items of 1 ms and 5 ms per piece; padding costs 0.3 ms.
  const auto cost = [](double pieces, double padding) {
    return SampleCost{pieces, 100, padding, 5e-3 * pieces + 100e-3 + 0.3e-3 * padding};
  };
  PieceCosts o;
  o.item_seconds = o.padding_seconds = 1e-3;  // a fit that took padding for items
  anchor_pieces(cost(0.5, 20), cost(0.125, 80), cost(0.125, 10), o);
  EXPECT_NEAR(o.piece_seconds, 5e-3, 1e-9);
  EXPECT_NEAR(o.item_seconds, 1e-3, 1e-9);
  EXPECT_NEAR(o.padding_seconds, 0.3e-3, 1e-9);
  anchor_pieces(cost(0.5, 20), cost(0.125, 80), cost(0.125, 79), o);  // nothing went: nothing is learnt
  EXPECT_NEAR(o.padding_seconds, 0.3 * o.item_seconds, 1e-9);
}

TEST(PieceCosts, TheParallelShareComesFromTwoNumbersOfThreads) {
  // 0.2 s of loading, then 1.0 s of which 0.6 s are shared by the threads.
  const auto seconds = [](int threads) { return 0.2 + 0.4 + 0.6 / threads; };
  for (const auto& [job, other] : {std::pair{2, 1}, {1, 4}, {8, 1}, {8, 2}})
    EXPECT_NEAR(parallel_share(seconds(job), seconds(other), 0.2, job, other), 0.6, 1e-9) << job << other;
  EXPECT_LT(parallel_share(1.2, 1.0, 0.1, 2, 1), 0);  // threads that only get in each other's way
}

// One sample a batch: no padding was seen, so a larger batch's is priced as items and not as nothing.
TEST(PieceCosts, PaddingThatWasNotSeenIsNotFree) {
  std::vector<measure::StepRow> rows;
  for (int i = 0; i < 60; ++i) {
    measure::StepRow row;
    row.step = i + 1, row.micro_batches = row.samples = 1;
    row.items = row.padded_items = 500 + 37 * (i % 20);
    row.phase_ns[static_cast<size_t>(measure::Phase::Forward)] = 1'000'000 + 2'000 * row.items;
    rows.push_back(row);
  }
  const PieceCosts costs = fit_pieces(rows, /*computes_padding=*/true);
  EXPECT_NEAR(costs.item_seconds, 2e-6, 1e-7);
  EXPECT_NEAR(costs.padding_seconds, costs.item_seconds, 1e-9);
}

}  // namespace
}  // namespace redline::doctor
