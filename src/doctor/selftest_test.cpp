#include "doctor/selftest.h"

#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

const Part kForward{false, static_cast<size_t>(measure::Phase::Forward)};
const Part kLog{false, static_cast<size_t>(measure::Phase::Log)};
const Part kDecode{true, static_cast<size_t>(measure::Stage::Decode)};

TEST(Selftest, PlanCoversEverythingAndHasControls) {
  const auto plan = selftest_plan({kForward, kLog, kDecode}, 1);
  int controls = 0, doubles = 0, forward = 0;
  for (const Injection& injection : plan) {
    controls += injection.parts.empty();
    doubles += injection.parts.size() == 2;
    forward += injection.parts == std::vector<Part>{kForward};
    if (injection.parts.size() == 2) {
      EXPECT_NE(injection.parts[0], injection.parts[1]);
    }
  }
  EXPECT_EQ(forward, 8);
  EXPECT_GE(controls, 15);
  EXPECT_GE(doubles, 10);
  EXPECT_EQ(plan.size(), selftest_plan({kForward, kLog, kDecode}, 1).size());
}

TEST(Selftest, ScoresByTable) {
  const auto fault = [](std::vector<Part> parts) {
    return Injection{std::move(parts), 0.1, measure::faults::DelayKind::Sleep};
  };
  struct Case {
    Answer answer;
    bool right;
  };
  const Case cases[] = {
      {{fault({}), {}, 0, 0}, true},
      {{fault({}), {kLog}, 0, 0}, false},
      {{fault({kForward}), {kForward}, 0.11, 0.10}, true},
      {{fault({kForward}), {kForward, kLog}, 0.14, 0.10}, true},
      {{fault({kForward}), {kLog, kForward}, 0.11, 0.10}, false},
      {{fault({kForward}), {}, 0, 0.10}, false},
      {{fault({kForward, kLog}), {kLog, kForward}, 0.2, 0.2}, true},
      {{fault({kForward, kLog}), {kLog}, 0.1, 0.2}, false},
  };
  std::vector<Answer> answers;
  for (const Case& c : cases) {
    EXPECT_EQ(c.answer.right(), c.right);
    answers.push_back(c.answer);
  }
  const SelftestResult result = score_selftest(answers);
  EXPECT_EQ(result.injections, 6);
  EXPECT_EQ(result.controls, 2);
  EXPECT_NEAR(result.accuracy, 0.5, 1e-12);
  EXPECT_NEAR(result.false_alarm_rate, 0.5, 1e-12);
  EXPECT_NEAR(result.median_gain_error, 0.025, 1e-9);
  EXPECT_EQ(result.matrix.at("forward").at("forward"), 2);
  EXPECT_EQ(result.matrix.at("control").at("log"), 1);
}

}  // namespace
}  // namespace redline::doctor
