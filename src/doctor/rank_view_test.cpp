#include "doctor/rank_view.h"

#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

using measure::Phase;

measure::RunRecord record_of(int64_t own_ms, int64_t reduce_ms, uint32_t flags = 0) {
  measure::RunRecord record;
  for (int64_t step = 1; step <= 12; ++step) {
    measure::StepRow row;
    row.step = step;
    const int64_t own = step <= 3 ? 10 * own_ms : own_ms;  // the first ones are not steady
    row.phase_ns[static_cast<size_t>(Phase::Forward)] = own * 1'000'000;
    row.phase_ns[static_cast<size_t>(Phase::Reduce)] = reduce_ms * 1'000'000;
    row.wall_ns = (own + reduce_ms) * 1'000'000;
    row.flags = flags;
    record.steps.push_back(row);
  }
  return record;
}

TEST(RankView, CeilingsByHand) {
  // Steps of 100 ms; the ranks have 60 and 80 ms of work, so the network costs 20 and rank 0 waits 20 for rank 1.
  const std::vector<measure::RunRecord> ranks{record_of(60, 40), record_of(80, 20)};
  const auto view = rank_view(ranks);
  ASSERT_TRUE(view);
  EXPECT_NEAR(view->step_seconds, 0.1, 1e-9);
  EXPECT_NEAR(view->ranks[1].own_seconds, 0.08, 1e-9);
  EXPECT_NEAR(view->ranks[0].wait_seconds, 0.04, 1e-9);
  EXPECT_NEAR(view->free_network_gain, 0.25, 1e-9) << "80 ms are left";
  EXPECT_NEAR(view->equal_ranks_gain, 80.0 / 70 - 1, 1e-9);
  EXPECT_NE(view->sentences[0].find("at most +25.0 %"), std::string::npos);
}

TEST(RankView, NamesStragglersOfTheRecord) {
  std::vector<measure::RunRecord> ranks{record_of(60, 40), record_of(80, 20)};
  ranks[0].events.push_back({"",
                             "rank.straggler",
                             {{"step", int64_t{64}},
                              {"rank", int64_t{1}},
                              {"own_seconds", 0.08},
                              {"others_seconds", 0.06},
                              {"part", std::string("wait")},
                              {"part_seconds", 0.02},
                              {"others_part_seconds", 0.0},
                              {"starved", false}}});
  const auto view = rank_view(ranks);
  ASSERT_TRUE(view);
  EXPECT_NE(view->sentences.back().find("Rank 1 was a straggler"), std::string::npos);
  EXPECT_NE(view->sentences.back().find("wait"), std::string::npos);
}

TEST(RankView, OneProcessAndUndividedStepsHaveNone) {
  const std::vector<measure::RunRecord> one{record_of(60, 0)};
  EXPECT_FALSE(rank_view(one));
  const std::vector<measure::RunRecord> undivided{record_of(60, 40), record_of(80, 20, measure::kStepUntimed)};
  EXPECT_FALSE(rank_view(undivided));
}

}  // namespace
}  // namespace redline::doctor
