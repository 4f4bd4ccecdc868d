#include "train/guards/precision_guard.h"

#include <gtest/gtest.h>

#include <numeric>

#include "train/guards/memory_guard.h"

namespace redline::train {
namespace {

GuardConfig quick() {
  GuardConfig config;
  config.clean_steps = 2;
  config.give_up_after = 2;
  return config;
}

TEST(PrecisionGuard, WalksTheLadderAndReturnsAfterCleanSteps) {
  PrecisionGuard guard(quick(), Precision::Fp16Mixed);
  EXPECT_EQ(guard.precision(), Precision::Fp16Mixed);
  EXPECT_EQ(guard.on_non_finite(), GuardAction::Rerun);
  EXPECT_EQ(guard.precision(), Precision::Bf16Mixed);
  EXPECT_EQ(guard.on_non_finite(), GuardAction::Rerun);
  EXPECT_EQ(guard.precision(), Precision::Fp32);
  EXPECT_FALSE(guard.on_commit());  // the re-run itself
  EXPECT_EQ(guard.precision(), Precision::Fp32);
  EXPECT_TRUE(guard.on_commit());
  EXPECT_EQ(guard.precision(), Precision::Fp16Mixed);
}

TEST(PrecisionGuard, StaysSafeAfterRepeatedFailures) {
  PrecisionGuard guard(quick(), Precision::Bf16Mixed);
  guard.on_non_finite();
  guard.on_commit();
  EXPECT_TRUE(guard.on_commit());
  guard.on_non_finite();  // second failure close to the first
  EXPECT_TRUE(guard.stays());
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(guard.on_commit());
  EXPECT_EQ(guard.precision(), Precision::Fp32);
}

TEST(PrecisionGuard, FailuresFarApartDoNotAddUp) {
  PrecisionGuard guard(quick(), Precision::Fp16Mixed);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(guard.on_non_finite(), GuardAction::Rerun);
    EXPECT_FALSE(guard.stays()) << round;
    guard.on_commit();
    EXPECT_TRUE(guard.on_commit());
    for (int i = 0; i < 20; ++i) guard.on_commit();
  }
}

TEST(PrecisionGuard, Fp32IsTriedOnceMoreThenStops) {
  PrecisionGuard guard(quick(), Precision::Fp32);
  EXPECT_EQ(guard.on_non_finite(), GuardAction::Rerun);
  EXPECT_EQ(guard.precision(), Precision::Fp32);
  EXPECT_EQ(guard.on_non_finite(), GuardAction::Stop);
  // A transient fault: the repeat is fine, and the next step has its own repeat.
  PrecisionGuard transient(quick(), Precision::Fp32);
  EXPECT_EQ(transient.on_non_finite(), GuardAction::Rerun);
  transient.on_commit();
  EXPECT_EQ(transient.on_non_finite(), GuardAction::Rerun);
}

TEST(PrecisionGuard, PoliciesSkipAndStop) {
  GuardConfig skip = quick();
  skip.non_finite = "skip";
  skip.max_skipped_steps = 3;
  PrecisionGuard guard(skip, Precision::Fp16Mixed);
  EXPECT_EQ(guard.on_non_finite(), GuardAction::Skip);
  guard.on_skip();
  EXPECT_EQ(guard.on_non_finite(), GuardAction::Skip);
  guard.on_skip();
  EXPECT_EQ(guard.on_non_finite(), GuardAction::Stop);
  EXPECT_EQ(guard.precision(), Precision::Fp16Mixed);

  GuardConfig stop = quick();
  stop.non_finite = "stop";
  EXPECT_EQ(PrecisionGuard(stop, Precision::Fp16Mixed).on_non_finite(), GuardAction::Stop);

  GuardConfig persistent = quick();
  persistent.persistent = "skip";
  PrecisionGuard skipping(persistent, Precision::Fp32);
  EXPECT_EQ(skipping.on_non_finite(), GuardAction::Rerun);
  EXPECT_EQ(skipping.on_non_finite(), GuardAction::Skip);
}

TEST(PrecisionGuard, StateRoundTrips) {
  PrecisionGuard a(quick(), Precision::Fp16Mixed), b(quick(), Precision::Fp16Mixed);
  a.on_non_finite();
  a.on_commit();
  b.restore(a.state());
  EXPECT_EQ(b.precision(), Precision::Bf16Mixed);
  EXPECT_TRUE(a.on_commit());
  EXPECT_TRUE(b.on_commit());
  // A checkpoint of a 16-mixed run continued in fp32 has a shorter ladder.
  PrecisionGuard shorter(quick(), Precision::Fp32);
  PrecisionGuard::State deep;
  deep.level = 2;
  deep.stays = true;
  shorter.restore(deep);
  EXPECT_EQ(shorter.precision(), Precision::Fp32);
  EXPECT_FALSE(shorter.stays());
}

TEST(MemoryGuard, HalvesUntilSingleRowsAndRemembers) {
  MemoryGuard guard;
  EXPECT_EQ(guard.pieces(8, 800), (std::vector<int64_t>{8}));
  EXPECT_TRUE(guard.on_out_of_memory(8, 800));
  EXPECT_EQ(guard.limit(), 400);
  EXPECT_EQ(guard.pieces(8, 800), (std::vector<int64_t>{4, 4}));
  EXPECT_TRUE(guard.on_out_of_memory(4, 400));
  EXPECT_EQ(guard.pieces(8, 800), (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(guard.pieces(8, 160), (std::vector<int64_t>{8}));  // shorter samples still fit whole
  EXPECT_TRUE(guard.on_out_of_memory(2, 200));
  EXPECT_FALSE(guard.on_out_of_memory(1, 100));
}

TEST(MemoryGuard, EverySplitCoversAllRowsAndShrinks) {
  for (int64_t rows = 2; rows <= 33; ++rows) {
    for (int64_t per_row : {1, 7, 100}) {
      MemoryGuard guard;
      int64_t largest = rows;
      while (largest > 1) {
        ASSERT_TRUE(guard.on_out_of_memory(largest, largest * per_row));
        const auto sizes = guard.pieces(rows, rows * per_row);
        EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), rows);
        const int64_t now = *std::max_element(sizes.begin(), sizes.end());
        ASSERT_LT(now, largest) << rows << " " << per_row;
        largest = now;
      }
    }
  }
}

}  // namespace
}  // namespace redline::train
