// The forecast proper. Its interval joins what steps differ by (the recorded ones drawn anew) and what the model of a
// network does not know: how much of a link's rate arrives, and what a message costs on other machines.
#include <algorithm>
#include <cmath>

#include "doctor/scaling.h"

namespace redline::doctor {

namespace {

// How a model of the network may be wrong.
struct View {
  double rate_share = 0.95;  // of the link's rate that carries gradients: headers take 3 to 6 %
  double message = 1.0;      // times what a message cost here
  double copying = 1.0;
  bool in_turn = false;  // copying waits for the wire
};
constexpr View kLikely{}, kKind{1.0, 0.7, 0.8, false}, kUnkind{0.88, 1.6, 1.3, true};

struct Costs {
  Network network;
  OwnCost own;
};

Costs seen_by(const View& view, const Network& network, const OwnCost& own) {
  Costs costs{network, own};
  costs.network.link.bytes_per_second *= view.rate_share;
  costs.own.message_seconds *= view.message;
  costs.own.seconds_per_byte *= view.copying;
  if (view.in_turn && network.link.bytes_per_second > 0)
    costs.network.link.bytes_per_second =
        1.0 / (1.0 / costs.network.link.bytes_per_second + costs.own.seconds_per_byte);
  return costs;
}

// The mean of the largest of `count` draws.
double expected_largest(std::vector<double> values, double count) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto m = static_cast<double>(values.size());
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum +=
        values[i] * (std::pow((static_cast<double>(i) + 1) / m, count) - std::pow(static_cast<double>(i) / m, count));
  return sum;
}

constexpr double kLayerSumBytes = 4096;

struct StepTime {
  double own = 0, exposed = 0, exchanges = 0;
  double sum() const { return own + exposed + exchanges; }
};

StepTime time_of_step(const ScaleStep& step, const Costs& costs, int ranks) {
  StepTime time;
  time.own = step.own_seconds;
  time.exposed = exposed_seconds(step.buckets, step.backward_seconds,
                                 [&](double bytes) { return all_reduce(costs.network, costs.own, ranks, bytes); });
  time.exchanges = step.exchanges * exchange_seconds(costs.network, costs.own, ranks) +
                   step.layer_sums * all_reduce_seconds(costs.network, costs.own, ranks, kLayerSumBytes);
  return time;
}

std::vector<StepTime> times_of(const ScaleBasis& basis, const Costs& costs, int ranks) {
  std::vector<StepTime> times;
  for (const ScaleStep& step : basis.steps) times.push_back(time_of_step(step, costs, ranks));
  return times;
}

StepTime mean_of(std::span<const StepTime> times, double slowest) {
  StepTime mean;
  const auto n = static_cast<double>(times.size());
  for (const StepTime& time : times) {
    mean.own += time.own * (1 + slowest) / n;
    mean.exposed += time.exposed / n;
    mean.exchanges += time.exchanges / n;
  }
  return mean;
}

// 5 % and 95 % of the mean over the recorded steps drawn anew.
measure::Interval mean_interval(std::span<const StepTime> times, double slowest) {
  std::vector<double> seconds;
  for (const StepTime& time : times) seconds.push_back(time.own * (1 + slowest) + time.exposed + time.exchanges);
  return measure::bootstrap(
      seconds, [](std::span<const double> v) { return measure::mean(v); }, 0.9);
}

struct Seconds {
  StepTime likely;
  measure::Interval interval;
};

Seconds seconds_at(const ScaleBasis& basis, const Network& network, int ranks) {
  constexpr double kLeastDoubt = 0.03;
  const double slowest = ranks > 1 ? std::max(0.0, expected_largest(basis.deviations, ranks)) : 0.0;
  Seconds out;
  out.likely = mean_of(times_of(basis, seen_by(kLikely, network, basis.own), ranks), slowest);
  const measure::Interval kind = mean_interval(times_of(basis, seen_by(kKind, network, basis.own), ranks), slowest),
                          unkind = mean_interval(times_of(basis, seen_by(kUnkind, network, basis.own), ranks), slowest);
  out.interval = {std::min(kind.low, out.likely.sum() * (1 - kLeastDoubt)),
                  std::max(unkind.high, out.likely.sum() * (1 + kLeastDoubt))};
  // One process says nothing of when its gradients come: in the worst case all of them at the end.
  if (!basis.measured && ranks > 1) {
    ScaleBasis late = basis;
    for (ScaleStep& step : late.steps)
      for (TimedBucket& bucket : step.buckets) bucket.ready_seconds = step.backward_seconds;
    late.own.message_seconds *= 3;
    late.own.seconds_per_byte *= 3;
    const auto times = times_of(late, seen_by(kUnkind, network, late.own), ranks);
    out.interval.high = std::max(out.interval.high, mean_interval(times, slowest).high);
  }
  return out;
}

ScalePoint point_at(const ScaleBasis& basis, const Network& network, int ranks, double alone_seconds,
                    std::span<const measure::NoiseScale> noise) {
  const Seconds at = seconds_at(basis, network, ranks);
  ScalePoint point;
  point.ranks = ranks;
  point.own_seconds = at.likely.own;
  point.exposed_seconds = at.likely.exposed;
  point.exchange_seconds = at.likely.exchanges;
  point.step_seconds = at.likely.sum();
  point.batch = basis.samples_per_step * ranks / basis.world;
  point.samples_per_second = point.batch / point.step_seconds;
  point.samples_interval = {point.batch / at.interval.high, point.batch / at.interval.low};
  point.efficiency = alone_seconds / point.step_seconds;
  point.efficiency_interval = {alone_seconds / at.interval.high, std::min(1.0, alone_seconds / at.interval.low)};
  if (!noise.empty()) point.worth = measure::noise_efficiency(noise, basis.samples_per_step, point.batch);
  return point;
}

double worth_of(const ScalePoint& point) { return point.samples_per_second * point.worth.value_or(1.0); }

}  // namespace

Forecast forecast_scale(const ScaleBasis& basis, const Network& network, std::span<const int> ranks,
                        std::optional<double> noise) {
  std::vector<measure::NoiseScale> known = basis.noise;
  if (noise) known = {{0, *noise}};
  Forecast forecast;
  forecast.notes = basis.notes;
  forecast.by_time_to_loss = !known.empty();
  if (!known.empty()) forecast.noise = known[0].noise;
  const double alone = seconds_at(basis, network, 1).likely.sum();
  const double now = worth_of(point_at(basis, network, basis.world, alone, known));
  for (const int n : ranks) {
    ScalePoint point = point_at(basis, network, n, alone, known);
    if (point.worth) point.faster_to_loss = worth_of(point) / now;
    forecast.points.push_back(point);
  }
  double before = worth_of(point_at(basis, network, 1, alone, known));
  for (int n = 1; n < Forecast::kMostRanks; n *= 2) {
    const double twice = worth_of(point_at(basis, network, 2 * n, alone, known));
    if (twice < Forecast::kWorthDoubling * before) {
      forecast.stops_paying_at = n;
      break;
    }
    before = twice;
  }
  return forecast;
}

}  // namespace redline::doctor
