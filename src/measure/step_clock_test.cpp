#include "measure/step_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

namespace redline::measure {
namespace {

void spin_us(int64_t microseconds) {
  const int64_t end = now_ns() + microseconds * 1000;
  while (now_ns() < end) {
  }
}

int64_t sum(const PhaseTimes& times) { return std::accumulate(times.begin(), times.end(), int64_t{0}); }
int64_t at(const PhaseTimes& times, Phase phase) { return times[static_cast<size_t>(phase)]; }

TEST(StepClock, PhasesAddUpToWallTimeExactly) {
  StepClock clock;
  for (int step = 0; step < 100; ++step) {
    clock.begin_step();
    spin_us(5);
    {
      const PhaseScope wait(clock, Phase::Wait);
      spin_us(10);
    }
    {
      const PhaseScope forward(clock, Phase::Forward);
      spin_us(20);
      const PhaseScope reduce(clock, Phase::Reduce);  // nested: taken from Forward
      spin_us(10);
    }
    const PhaseTimes& times = clock.end_step();
    EXPECT_EQ(sum(times), clock.wall_ns());
    EXPECT_GE(at(times, Phase::Other), 5'000);
    EXPECT_GE(at(times, Phase::Wait), 10'000);
    EXPECT_GE(at(times, Phase::Forward), 20'000);
    EXPECT_GE(at(times, Phase::Reduce), 10'000);
    EXPECT_EQ(at(times, Phase::Backward), 0);
  }
}

TEST(StepClock, ShortStepsAreSampled) {
  EXPECT_EQ(sampling_interval(10, 50, 1e6), 1) << "0.05 % of a step of 1 ms";
  EXPECT_EQ(sampling_interval(10, 50, 50'000), 1) << "exactly 1 %";
  EXPECT_EQ(sampling_interval(10, 50, 20'000), 3);
  EXPECT_EQ(sampling_interval(10, 50, 0), 1);
  StepClock clock;
  clock.sample_every(3);
  int64_t begin = 0;
  for (int step = 0; step < 9; ++step) {
    clock.begin_step();
    if (step == 0) begin = clock.begin_ns();
    {
      const PhaseScope outer(clock, Phase::Forward);
      const PhaseScope inner(clock, Phase::Log);
    }
    EXPECT_EQ(clock.scopes(), 2);
    const PhaseTimes times = clock.end_step();
    EXPECT_EQ(clock.timed(), step % 3 == 2);
    if (!clock.timed()) {  // all but what comes now and then
      EXPECT_GT(at(times, Phase::Log), 0);
      EXPECT_EQ(at(times, Phase::Other) + at(times, Phase::Log), clock.wall_ns());
    }
    EXPECT_EQ(clock.begin_ns(), begin) << "steps tile the timeline, timed or not";
    begin += clock.wall_ns();
  }
}

TEST(StepClock, ProcessorTimeTellsWaitingFromWorking) {
  StepClock clock;
  clock.sample_cpu_every(2);
  int taken = 0;
  for (int step = 0; step < 10; ++step) {
    clock.begin_step();
    {
      const PhaseScope wait(clock, Phase::Wait);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    {
      const PhaseScope forward(clock, Phase::Forward);
      const int64_t until = thread_cpu_ns() + 2'000'000;
      while (thread_cpu_ns() < until) {
      }
    }
    const PhaseTimes times = clock.end_step();
    const PhaseTimes* const cpu = clock.cpu();
    if (cpu == nullptr) continue;
    ++taken;
    EXPECT_LT(at(*cpu, Phase::Wait), 2'000'000);
    EXPECT_GE(at(times, Phase::Wait), 5'000'000);
    EXPECT_GE(at(*cpu, Phase::Forward), 2'000'000);
    EXPECT_LE(at(*cpu, Phase::Forward), at(times, Phase::Forward) + 100'000);
  }
  EXPECT_EQ(taken, 4);  // of 2, 3, 2, 3 steps
  clock.sample_cpu_every(0);
  clock.begin_step();
  clock.end_step();
  EXPECT_EQ(clock.cpu(), nullptr);
  EXPECT_EQ(sampling_interval(20, 200, 1e6, 0.001), 4);
}

TEST(StepClock, StepsTileTheTimeline) {
  StepClock clock;
  clock.begin_step();
  const int64_t begin = clock.begin_ns();
  int64_t total = 0;
  for (int step = 0; step < 20; ++step) {
    if (step > 0) clock.begin_step();
    { const PhaseScope scope(clock, Phase::Forward); }
    clock.end_step();
    total += clock.wall_ns();
    const PhaseScope between(clock, Phase::Validate);  // outside of any step: counts in the next
    spin_us(3);
  }
  clock.begin_step();
  const PhaseTimes& last = clock.end_step();
  EXPECT_GE(at(last, Phase::Validate), 3'000);
  total += clock.wall_ns();
  EXPECT_EQ(total, clock.begin_ns() + clock.wall_ns() - begin) << "no time is lost or counted twice";
}

TEST(StepClock, IdleTimeCanBeForgotten) {
  StepClock clock;
  clock.begin_step();
  clock.end_step();
  clock.forget_idle();
  spin_us(3000);
  clock.begin_step();
  clock.end_step();
  EXPECT_LT(clock.wall_ns(), 3'000'000);
  clock.forget_idle();
  { const PhaseScope scope(clock, Phase::Log); }
  clock.begin_step();
  EXPECT_EQ(at(clock.end_step(), Phase::Log), 0);
}

TEST(StepClock, AnExceptionLeavesTheOuterPhase) {
  StepClock clock;
  clock.begin_step();
  try {
    const PhaseScope forward(clock, Phase::Forward);
    throw 1;
  } catch (int) {
    spin_us(50);
  }
  EXPECT_GE(at(clock.end_step(), Phase::Other), 50'000);
}

TEST(StepClock, TracesDisjointSpansThatCoverTheStep) {
  StepClock clock;
  SpanLog log;
  clock.trace_to(&log);
  log.begin_step(7);
  clock.begin_step();
  {
    const PhaseScope outer(clock, Phase::Forward);
    const PhaseScope inner(clock, Phase::Reduce);
    spin_us(2);
  }
  clock.end_step();
  clock.trace_to(nullptr);
  const std::vector<Span> spans = log.take();
  ASSERT_EQ(spans.size(), 5U);  // other, forward, reduce, forward, other
  int64_t covered = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    covered += spans[i].end_ns - spans[i].begin_ns;
    EXPECT_EQ(spans[i].step, 7);
    if (i > 0) {
      EXPECT_EQ(spans[i].begin_ns, spans[i - 1].end_ns);
    }
  }
  EXPECT_EQ(covered, clock.wall_ns());
  EXPECT_EQ(spans[2].id, static_cast<uint8_t>(Phase::Reduce));
  EXPECT_TRUE(log.take().empty());
}

TEST(SpanLog, IsBounded) {
  SpanLog log(2);
  for (int i = 0; i < 5; ++i) log.add(Stage::Decode, 1, i, i + 1);
  EXPECT_EQ(log.take().size(), 2U);
  EXPECT_EQ(log.dropped(), 3);
}

TEST(StepClock, CalibrationGivesAPlausibleCost) {
  const double cost = calibrate_scope_ns();
  EXPECT_GT(cost, 1.0);
  EXPECT_LT(cost, 1e5);
  EXPECT_EQ(cost, calibrate_scope_ns()) << "measured once";
}

}  // namespace
}  // namespace redline::measure
