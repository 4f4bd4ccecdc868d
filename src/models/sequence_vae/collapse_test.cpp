#include "models/sequence_vae/collapse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::models::sequence_vae {
namespace {

using ::testing::HasSubstr;

// Four dimensions; `active` of them have variance 1 and KL 2.
Evaluation evaluation(int64_t step, int active, double kl, double information, bool full_weight = true) {
  Evaluation e;
  e.step = step;
  e.kl = kl;
  e.mutual_information = information;
  e.weight_is_full = full_weight;
  for (int j = 0; j < 4; ++j) {
    e.variance_of_means.push_back(j < active ? 1.0 : 0.001);
    e.kl_per_dim.push_back(j < active ? 2.0 : 0.001);
  }
  return e;
}

TEST(CollapseAlone, Table) {
  CollapseLimits limits;
  limits.partial_share = 0.5;
  struct Row {
    int active;
    double kl, information;
    Collapse expected;
  };
  for (const Row& row : std::vector<Row>{{4, 8.0, 3.0, Collapse::None},
                                         {2, 4.0, 2.0, Collapse::None},
                                         {1, 2.0, 1.0, Collapse::Partial},
                                         {0, 8.0, 3.0, Collapse::Full},
                                         {4, 0.05, 0.05, Collapse::Full},
                                         {4, 0.05, 0.5, Collapse::None},  // a small KL alone is no proof
                                         {4, 0.5, 0.05, Collapse::None}}) {
    const CollapseVerdict v = judge_alone(limits, evaluation(1, row.active, row.kl, row.information));
    EXPECT_EQ(v.suspected, row.expected) << row.active << " " << row.kl << " " << row.information;
    EXPECT_EQ(v.reasons.empty(), row.expected == Collapse::None);
    EXPECT_EQ(v.active_units, row.active);
    EXPECT_EQ(v.collapsed_dims, 4 - row.active);
  }
}

TEST(CollapseAlone, VarianceExactlyAtTheThresholdIsActive) {
  Evaluation e = evaluation(1, 0, 5.0, 5.0);
  e.variance_of_means[0] = 0.01;
  EXPECT_EQ(judge_alone({}, e).active_units, 1);
}

TEST(CollapseDetector, CallsItAfterPatienceAndRemembersSinceWhen) {
  CollapseDetector detector({});
  EXPECT_EQ(detector.update(evaluation(100, 4, 5.0, 2.0)).level, Collapse::None);
  EXPECT_EQ(detector.update(evaluation(200, 0, 0.0, 0.0)).level, Collapse::None);
  EXPECT_EQ(detector.update(evaluation(300, 0, 0.0, 0.0)).level, Collapse::None);
  const CollapseVerdict v = detector.update(evaluation(400, 0, 0.0, 0.0));
  EXPECT_EQ(v.level, Collapse::Full);
  EXPECT_EQ(v.since_step, 200);
  EXPECT_THAT(v.sentence(), HasSubstr("posterior collapse (full) since step 200: no active unit"));
}

TEST(CollapseDetector, OneHealthyEvaluationEndsTheStreak) {
  CollapseDetector detector({});
  detector.update(evaluation(100, 0, 0.0, 0.0));
  detector.update(evaluation(200, 0, 0.0, 0.0));
  EXPECT_EQ(detector.update(evaluation(300, 4, 5.0, 2.0)).since_step, 0);
  EXPECT_EQ(detector.update(evaluation(400, 0, 0.0, 0.0)).streak, 1);
}

TEST(CollapseDetector, JudgesNothingWhileTheWeightRises) {
  CollapseDetector detector({});
  for (int64_t step = 100; step <= 1000; step += 100) {
    const CollapseVerdict v = detector.update(evaluation(step, 0, 0.0, 0.0, false));
    EXPECT_FALSE(v.judged);
    EXPECT_EQ(v.level, Collapse::None);
    EXPECT_EQ(v.streak, 0);
  }
}

// Cyclical weights: evaluations in the rising part neither add to the streak nor end it.
TEST(CollapseDetector, RisingPhasesDoNotInterruptAStreak) {
  CollapseDetector detector({});
  detector.update(evaluation(100, 0, 0.0, 0.0));
  detector.update(evaluation(200, 4, 9.0, 3.0, false));
  detector.update(evaluation(300, 0, 0.0, 0.0));
  EXPECT_EQ(detector.update(evaluation(400, 0, 0.0, 0.0)).level, Collapse::Full);
}

TEST(CollapseDetector, ContinuesAfterARestart) {
  CollapseDetector before({}), after({});
  before.update(evaluation(100, 0, 0.0, 0.0));
  before.update(evaluation(200, 0, 0.0, 0.0));
  after.restore(before.streak(), before.since_step());
  const CollapseVerdict v = after.update(evaluation(300, 0, 0.0, 0.0));
  EXPECT_EQ(v.level, Collapse::Full);
  EXPECT_EQ(v.since_step, 100);
}

}  // namespace
}  // namespace redline::models::sequence_vae
