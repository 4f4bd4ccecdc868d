#include "measure/faults.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "core/error.h"
#include "measure/stage_clock.h"
#include "measure/step_clock.h"

namespace redline::measure {
namespace {

class Faults : public testing::Test {
 protected:
  void TearDown() override { faults::clear(); }
};

TEST_F(Faults, DelaysLandInTheirPhase) {
  for (const auto kind : {faults::DelayKind::Sleep, faults::DelayKind::Spin}) {
    faults::add_delay(Phase::Optimiser, 2e-3, kind);
    StepClock clock;
    clock.begin_step();
    { const PhaseScope scope(clock, Phase::Optimiser); }
    { const PhaseScope scope(clock, Phase::Forward); }
    const PhaseTimes times = clock.end_step();
    EXPECT_GE(times[static_cast<size_t>(Phase::Optimiser)], 2'000'000);
    EXPECT_GE(clock.wall_ns(), 2'000'000);
    faults::clear();
    clock.begin_step();
    { const PhaseScope scope(clock, Phase::Optimiser); }
    EXPECT_LT(clock.end_step()[static_cast<size_t>(Phase::Optimiser)], 2'000'000) << "cleared";
  }
}

// A sleeping fault costs no CPU time, a spinning one does: the doctor tells them apart by that.
TEST_F(Faults, SpinningUsesTheCpuAndSleepingDoesNot) {
  StageClock clock(1);
  const auto cpu_of = [&](faults::DelayKind kind) {
    faults::add_delay(Stage::Decode, 5e-3, kind);
    const int64_t before = thread_cpu_ns();
    { const StageScope scope(clock.slot(0), Stage::Decode); }
    return thread_cpu_ns() - before;
  };
  EXPECT_LT(cpu_of(faults::DelayKind::Sleep), 2'500'000);
  EXPECT_GE(clock.totals().ns[static_cast<size_t>(Stage::Decode)], 5'000'000);
  EXPECT_GT(cpu_of(faults::DelayKind::Spin), 500'000);
}

TEST_F(Faults, TheNthOccurrenceFailsOnce) {
  faults::fail_once("checkpoint.sync", 3);
  EXPECT_FALSE(faults::take("checkpoint.sync"));
  EXPECT_FALSE(faults::take("checkpoint.write")) << "other names are not counted";
  EXPECT_FALSE(faults::take("checkpoint.sync"));
  EXPECT_TRUE(faults::take("checkpoint.sync"));
  EXPECT_FALSE(faults::take("checkpoint.sync"));
  EXPECT_THROW(faults::fail_once("x", 0), InternalError);
}

// The environment is read once, at first use, so each case runs in a process of its own. Exit codes: 42 = the second
// take("a") failed as asked, 0 = it did not, 9 = ConfigError.
int second_take_in_child(const char* variable) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("REDLINE_FAULTS", variable, 1);
    execl("/proc/self/exe", "measure_test", "--gtest_filter=FaultsChild.Takes", static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(FaultsChild, Takes) {
  const char* variable = std::getenv("REDLINE_FAULTS");
  if (variable == nullptr) return;  // run by the parent only
  int code = 0;
  try {
    faults::take("a");
    code = faults::take("a") ? 42 : 0;
  } catch (const ConfigError&) {
    code = 9;
  }
  _exit(code);
}

TEST(FaultsEnvironment, IsReadAtFirstUse) {
  EXPECT_EQ(second_take_in_child("a@2"), 42);
  EXPECT_EQ(second_take_in_child("b@2,a@1"), 0);
  EXPECT_EQ(second_take_in_child("a@0"), 9);
  EXPECT_EQ(second_take_in_child("a"), 9);
  EXPECT_EQ(second_take_in_child("@3"), 9);
}

}  // namespace
}  // namespace redline::measure
