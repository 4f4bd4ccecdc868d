// Forecasts of made-up records whose answer is known by hand.
#include "doctor/scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "measure/reduce_timeline.h"

namespace redline::doctor {
namespace {

constexpr int64_t kMs = 1'000'000;

// Two ranks: 100 ms of their own, of which backward is the last 60; two buckets of 5 MB, ready after 30 and 60 ms.
// A bucket takes 5 ms by itself here, an exchange 0.2 ms.
std::vector<measure::RunRecord> two_ranks(int64_t slower_ns = 0) {
  std::vector<measure::RunRecord> ranks(2);
  for (size_t r = 0; r < 2; ++r)
    for (int64_t step = 1; step <= 20; ++step) {
      measure::StepRow row;
      row.step = step;
      row.samples = 32;
      row.wall_ns = 120 * kMs;
      ranks[r].steps.push_back(row);
      measure::ReduceTimeline one;
      one.step = step;
      one.buckets = {{5'000'000, 30 * kMs, 35 * kMs + 400'000}, {5'000'000, 60 * kMs, 65 * kMs + 400'000}};
      if (r == 0) one.buckets[1].done_ns += slower_ns;  // it waited for rank 1
      one.backward_ns = 60 * kMs;
      one.end_ns = 66 * kMs;
      one.own_ns = 100 * kMs + (r == 1 ? slower_ns : 0);
      one.exchanges = 2;
      one.exchange_ns = 400'000;
      one.gradient_squared = 2.0;
      one.variance = 200.0;
      ranks[r].events.push_back({"", measure::kReduceTimelineEvent, measure::timeline_fields(one)});
    }
  return ranks;
}

TEST(Scaling, TheBasisIsWhatWasRecorded) {
  const ScaleBasis basis = scale_basis(two_ranks());
  EXPECT_TRUE(basis.measured);
  EXPECT_EQ(basis.world, 2);
  EXPECT_EQ(basis.steps.size(), 40u);
  EXPECT_EQ(basis.samples_per_step, 32);
  EXPECT_NEAR(basis.own.message_seconds, 0.2e-3, 1e-9);
  EXPECT_NEAR(basis.own.seconds_per_byte, 1e-9, 1e-12) << "5 ms for 5 MB, each byte once";
  ASSERT_EQ(basis.noise.size(), 1u);
  EXPECT_NEAR(basis.noise[0].noise, 100, 1e-9);
  for (const double deviation : basis.deviations) EXPECT_EQ(deviation, 0);
}

TEST(Scaling, WaitingForASlowerRankIsNoCostOfTheNetwork) {
  const ScaleBasis basis = scale_basis(two_ranks(20 * kMs));
  EXPECT_NEAR(basis.own.seconds_per_byte, 1e-9, 1e-12);
  ASSERT_EQ(basis.deviations.size(), 40u);
  EXPECT_NEAR(basis.deviations[0], -10.0 / 110 * std::sqrt(2.0), 1e-9);
  const Network ring{Topology::Ring, {1e12, 0}, 1};
  const std::vector<int> ranks{2, 64};
  const Forecast forecast = forecast_scale(basis, ring, ranks);
  EXPECT_GT(forecast.points[1].own_seconds, forecast.points[0].own_seconds) << "the slowest of 64";
  EXPECT_NEAR(forecast.points[1].own_seconds, 0.110 * (1 + 10.0 / 110 * std::sqrt(2.0)), 1e-4);
}

TEST(Scaling, ABucketThatCameBackSoonBoundsItsMessages) {
  std::vector<measure::RunRecord> ranks = two_ranks();
  for (measure::RunRecord& rank : ranks)
    for (measure::Event& event : rank.events) {
      measure::ReduceTimeline one = *measure::timeline_of(event);
      one.exchange_ns = 8'000'000;  // ranks that have to be woken up
      event.fields = measure::timeline_fields(one);
    }
  const ScaleBasis basis = scale_basis(ranks);
  EXPECT_NEAR(basis.own.message_seconds, 4e-3, 1e-9);
  EXPECT_NEAR(basis.own.hop(), 2.7e-3, 1e-9) << "two of them in 5.4 ms";
}

TEST(Scaling, AForecastByHand) {
  const ScaleBasis basis = scale_basis(two_ranks());
  // 1 Gbit/s, of which 94 % carry gradients: a bucket takes 42.6 ms on two ranks and two latencies at its start, and
  // two messages of 0.2 ms of this machine.
  const Network ring{Topology::Ring, {125e6, 50e-6}, 1};
  const std::vector<int> ranks{1, 2, 4};
  const Forecast forecast = forecast_scale(basis, ring, ranks);
  ASSERT_EQ(forecast.points.size(), 3u);
  const ScalePoint &one = forecast.points[0], &two = forecast.points[1], &four = forecast.points[2];
  EXPECT_NEAR(one.step_seconds, 0.1, 1e-9);
  EXPECT_NEAR(one.samples_per_second, 160, 1e-6);
  EXPECT_EQ(one.efficiency, 1);
  const double moving = 5e6 / (0.94 * 125e6) + 2 * 50e-6;
  // The first leaves at 30 ms and is back after backward; the second moves while the first waits for its messages.
  EXPECT_NEAR(two.exposed_seconds, 0.030 + 2 * moving + 2 * 0.2e-3 - 0.060, 1e-9);
  EXPECT_NEAR(two.exchange_seconds, 2 * 0.25e-3, 1e-9);
  EXPECT_NEAR(two.samples_per_second, 32 / (0.1 + two.exposed_seconds + 0.5e-3), 1e-6);
  EXPECT_LT(two.samples_interval.low, two.samples_per_second);
  EXPECT_GE(two.samples_interval.high, two.samples_per_second);
  EXPECT_LT(four.efficiency, two.efficiency);
  EXPECT_EQ(four.batch, 64);
  // Noise of 100 samples: 64 in a step are worth (100 + 32) / (100 + 64) of those of 32.
  EXPECT_NEAR(*four.worth, 132.0 / 164, 1e-9);
  EXPECT_NEAR(*four.faster_to_loss, four.samples_per_second * 132 / 164 / two.samples_per_second, 1e-9);
}

// Width of the interval over the forecast, for two ranks whose steps take 100 ms and `spread` more or less by turns of
// five, and `missed` that no part of the record explains.
double doubt(int64_t spread_ns, int64_t missed_ns) {
  std::vector<measure::RunRecord> ranks = two_ranks();
  for (measure::RunRecord& rank : ranks)
    for (size_t i = 0; i < rank.events.size(); ++i) {
      measure::ReduceTimeline one = *measure::timeline_of(rank.events[i]);
      one.own_ns += i / 5 % 2 == 0 ? spread_ns : -spread_ns;
      rank.events[i].fields = measure::timeline_fields(one);
      rank.steps[i].wall_ns = one.own_ns + 5 * kMs + 800'000 + missed_ns;
    }
  const std::vector<int> two{2};
  const ScalePoint point = forecast_scale(scale_basis(ranks), {Topology::Ring, {1e12, 0}, 1}, two).points[0];
  EXPECT_LE(point.samples_interval.low, point.samples_per_second);
  EXPECT_GE(point.samples_interval.high, point.samples_per_second);
  return (point.samples_interval.high - point.samples_interval.low) / point.samples_per_second;
}

TEST(Scaling, TheIntervalIsWhatTheRecordShows) {
  const double steady = doubt(0, 0);
  EXPECT_LT(steady, 0.06) << "a wire that costs nothing, steps that are alike, a model that is right";
  EXPECT_GT(doubt(10 * kMs, 0), steady + 0.01) << "steps that differ";
  EXPECT_GT(doubt(0, 21 * kMs), steady + 0.08) << "a fifth that the model misses may be missed, or not";
}

TEST(Scaling, SaysWhereItStopsPaying) {
  ScaleBasis basis = scale_basis(two_ranks());
  basis.noise.clear();
  const std::vector<int> ranks{2};
  const auto stop = [&](double bandwidth, double latency, std::optional<double> noise = std::nullopt) {
    return forecast_scale(basis, {Topology::Ring, {bandwidth, latency}, 1}, ranks, noise).stops_paying_at;
  };
  EXPECT_EQ(stop(1e4, 50e-6), 1) << "a link so slow that one rank is as good";
  const std::vector<int> many{2, 8, 64, 512};
  const auto slow = forecast_scale(basis, {Topology::Ring, {125e6, 50e-6}, 1}, many, std::nullopt),
             fast = forecast_scale(basis, {Topology::Ring, {125e7, 1e-6}, 1}, many, std::nullopt);
  for (size_t i = 0; i < many.size(); ++i)
    EXPECT_GT(fast.points[i].samples_per_second, slow.points[i].samples_per_second) << many[i];
  EXPECT_LT(stop(125e8, 1e-6, 50.0), stop(125e8, 1e-6)) << "batches far beyond the noise are worth little";
}

TEST(Scaling, OneProcessIsTakenWithCare) {
  std::vector<measure::RunRecord> one(1);
  EXPECT_THROW(scale_basis(one), DataError);
  for (int64_t step = 1; step <= 10; ++step) {
    measure::StepRow row;
    row.step = step;
    row.samples = 32;
    row.micro_batches = 1;
    row.wall_ns = 100 * kMs;
    row.phase_ns[static_cast<size_t>(measure::Phase::Backward)] = 60 * kMs;
    one[0].steps.push_back(row);
  }
  EXPECT_THROW(scale_basis(one), DataError) << "bytes of gradients are not known";
  one[0].events.push_back({"", "loop.cost", {{"gradient_bytes", int64_t{40'000'000}}}});
  const ScaleBasis basis = scale_basis(one);
  EXPECT_FALSE(basis.measured);
  ASSERT_EQ(basis.steps[0].buckets.size(), 11u) << "1 MiB, tenths, and the rest";
  EXPECT_NEAR(basis.steps[0].buckets.back().ready_seconds, 0.06, 1e-9);
  const std::vector<int> ranks{8};
  const Forecast careful = forecast_scale(basis, {Topology::Ring, {125e7, 50e-6}, 1}, ranks);
  EXPECT_FALSE(careful.points[0].worth);
  EXPECT_FALSE(careful.notes.empty());
  EXPECT_LT(careful.points[0].samples_interval.low, 0.8 * careful.points[0].samples_per_second) << "a wide interval";
}

}  // namespace
}  // namespace redline::doctor
