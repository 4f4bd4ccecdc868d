// The forecast proper. Its interval is that of forecasts from the recorded steps drawn anew: each draw measures own
// work, messages and bytes again, and how far the model was from the recorded steps themselves. What no record shows is
// drawn from what is possible: the share of a link's rate that carries gradients, and how far copying hides behind it.
#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "doctor/scaling.h"

namespace redline::doctor {

namespace {

// What a model of the network does not know of it.
struct View {
  double rate_share = 0.94;  // that carries gradients
  double in_turn = 0;        // of the copying waits for the wire
  double segment_latencies = 2;
  double own_share = 1;  // of what sending cost here: ranks on machines of their own are not in each other's way
};
constexpr View kLikely{};
// Ethernet with 1500-byte frames carries 1448 bytes of 1538, and acknowledgements of what comes from the other side
// take 2 to 4 %; large segments carry nearly all.
constexpr double kLeastRateShare = 0.90, kMostRateShare = 1.0;
// The next rank may be ready before it is asked; TCP may have to start anew after a pause.
constexpr double kLeastLatencies = 1, kMostLatencies = 2.5;
// For a run of one process, which has measured neither messages nor copying.
constexpr double kAssumedDoubt = 3;

struct Costs {
  Network network;
  OwnCost own;
};

Costs seen_by(const View& view, const Network& network, const OwnCost& own) {
  Costs costs{network, own};
  costs.network.link.segment_latencies = view.segment_latencies;
  costs.own.message_seconds *= view.own_share;
  costs.own.seconds_per_byte *= view.own_share;
  if (own.hop_seconds) costs.own.hop_seconds = *own.hop_seconds * view.own_share;
  double& rate = costs.network.link.bytes_per_second;
  if (rate <= 0) return costs;
  rate *= view.rate_share;
  const double wire = 1.0 / rate;  // the shorter of both hides, but for a part
  const double both =
      std::max(wire, costs.own.seconds_per_byte) + view.in_turn * std::min(wire, costs.own.seconds_per_byte);
  rate = 1.0 / both;
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

double slowest_of(std::span<const double> deviations, int ranks) {
  return ranks > 1 ? std::max(0.0, expected_largest({deviations.begin(), deviations.end()}, ranks)) : 0.0;
}

constexpr double kLayerSumBytes = 4096;

struct StepTime {
  double own = 0, exposed = 0, exchanges = 0;
  double sum() const { return own + exposed + exchanges; }
};

// `slowest`: by how much the rank that all wait for is slower than its mean. It sends its buckets later too, so what it
// loses in backward shows only where the network would have been idle.
StepTime time_of_step(const ScaleStep& step, const Costs& costs, int ranks, double slowest) {
  StepTime time;
  time.own = step.own_seconds * (1 + slowest);
  std::vector<TimedBucket> buckets = step.buckets;
  for (TimedBucket& bucket : buckets) bucket.ready_seconds *= 1 + slowest;
  time.exposed = exposed_seconds(buckets, step.backward_seconds * (1 + slowest),
                                 [&](double bytes) { return all_reduce(costs.network, costs.own, ranks, bytes); });
  time.exchanges = step.exchanges * exchange_seconds(costs.network, costs.own, ranks) +
                   step.layer_sums * all_reduce_seconds(costs.network, costs.own, ranks, kLayerSumBytes);
  return time;
}

std::vector<StepTime> times_of(const ScaleBasis& basis, const Costs& costs, int ranks) {
  const double slowest = slowest_of(basis.deviations, ranks);
  std::vector<StepTime> times;
  for (const ScaleStep& step : basis.steps) times.push_back(time_of_step(step, costs, ranks, slowest));
  return times;
}

StepTime mean_of(std::span<const StepTime> times) {
  StepTime mean;
  const auto n = static_cast<double>(times.size());
  for (const StepTime& time : times) {
    mean.own += time.own / n;
    mean.exposed += time.exposed / n;
    mean.exchanges += time.exchanges / n;
  }
  return mean;
}

StepTime likely_time(const ScaleBasis& basis, const Network& network, int ranks) {
  return mean_of(times_of(basis, seen_by(kLikely, network, basis.own), ranks));
}

// Seconds that the recorded steps took over what the model says of each: how wrong it is where that is known.
double measured_over_model(const ScaleBasis& basis) {
  const Network none;
  double wall = 0, model = 0;
  for (const RecordedStep& step : basis.recorded) {
    if (!step.wall_seconds) continue;
    double last = 0;  // all wait for the slowest
    for (size_t i = step.first; i < step.first + step.count; ++i)
      last = std::max(last, time_of_step(basis.steps[i], {none, basis.own}, basis.world, 0).sum());
    wall += *step.wall_seconds;
    model += last;
  }
  return model > 0 ? wall / model : 1.0;
}

// The recorded steps drawn anew in runs of a few, since neighbours are alike, and everything measured again from them.
ScaleBasis drawn_anew(const ScaleBasis& basis, KeyedStream& chance) {
  const auto count = static_cast<int64_t>(basis.recorded.size()), run = std::clamp<int64_t>(count / 4, 1, 8);
  ScaleBasis drawn;
  drawn.world = basis.world;
  drawn.samples_per_step = basis.samples_per_step;
  drawn.measured = true;
  for (int64_t made = 0; made < count;) {
    const int64_t first = chance.uniform_int(0, count - run);
    for (int64_t i = first; i < first + run && made < count; ++i, ++made) {
      RecordedStep step = basis.recorded[static_cast<size_t>(i)];
      const size_t from = step.first;
      step.first = drawn.steps.size();
      for (size_t r = 0; r < step.count; ++r) drawn.steps.push_back(basis.steps[from + r]);
      drawn.deviations.insert(drawn.deviations.end(), step.deviations.begin(), step.deviations.end());
      drawn.recorded.push_back(std::move(step));
    }
  }
  drawn.own = measured_cost(drawn.recorded, drawn.world);
  return drawn;
}

measure::Interval measured_interval(const ScaleBasis& basis, const Network& network, int ranks) {
  constexpr int kDraws = 200;
  KeyedStream chance(1, 0, 0, name_key("doctor.scaling.interval"));
  std::vector<double> seconds;
  for (int i = 0; i < kDraws; ++i) {
    const ScaleBasis drawn = drawn_anew(basis, chance);
    const View view{chance.uniform(kLeastRateShare, kMostRateShare), chance.uniform(0, 1),
                    chance.uniform(kLeastLatencies, kMostLatencies), chance.uniform(0, 1)};
    const double time = mean_of(times_of(drawn, seen_by(view, network, drawn.own), ranks)).sum();
    // Whether what the model misses here is missed elsewhere too is not known.
    seconds.push_back(time * (1 + chance.uniform(0, 1) * (measured_over_model(drawn) - 1)));
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[kDraws / 20], seconds[kDraws - 1 - kDraws / 20]};
}

// One process says nothing of when its gradients come (in the worst case all of them at the end), and nothing of what
// sending costs.
measure::Interval assumed_interval(const ScaleBasis& basis, const Network& network, int ranks) {
  ScaleBasis late = basis;
  for (ScaleStep& step : late.steps)
    for (TimedBucket& bucket : step.buckets) bucket.ready_seconds = step.backward_seconds;
  const auto costs = [&](const View& view, double factor) {
    return seen_by(view, network, {basis.own.message_seconds * factor, basis.own.seconds_per_byte * factor});
  };
  const auto interval = [](const std::vector<StepTime>& times) {
    std::vector<double> seconds;
    for (const StepTime& time : times) seconds.push_back(time.sum());
    return measure::bootstrap(
        seconds, [](std::span<const double> v) { return measure::mean(v); }, 0.9);
  };
  return {interval(times_of(basis, costs({kMostRateShare, 0, kLeastLatencies, 1}, 1 / kAssumedDoubt), ranks)).low,
          interval(times_of(late, costs({kLeastRateShare, 1, kMostLatencies, 1}, kAssumedDoubt), ranks)).high};
}

struct Seconds {
  StepTime likely;
  measure::Interval interval;
};

Seconds seconds_at(const ScaleBasis& basis, const Network& network, int ranks) {
  Seconds out;
  out.likely = likely_time(basis, network, ranks);
  out.interval = basis.measured ? measured_interval(basis, network, ranks) : assumed_interval(basis, network, ranks);
  out.interval = {std::min(out.interval.low, out.likely.sum()), std::max(out.interval.high, out.likely.sum())};
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

// The same without an interval.
double worth_at(const ScaleBasis& basis, const Network& network, int ranks,
                std::span<const measure::NoiseScale> noise) {
  const double batch = basis.samples_per_step * ranks / basis.world;
  const double worth = noise.empty() ? 1.0 : measure::noise_efficiency(noise, basis.samples_per_step, batch);
  return worth * batch / likely_time(basis, network, ranks).sum();
}

}  // namespace

Forecast forecast_scale(const ScaleBasis& basis, const Network& network, std::span<const int> ranks,
                        std::optional<double> noise) {
  std::vector<measure::NoiseScale> known = basis.noise;
  if (noise) known = {{0, *noise}};
  Forecast forecast;
  forecast.notes = basis.notes;
  forecast.by_time_to_loss = !known.empty();
  if (!known.empty()) forecast.noise = known[0].noise;
  const double alone = likely_time(basis, network, 1).sum();
  const double now = worth_at(basis, network, basis.world, known);
  for (const int n : ranks) {
    ScalePoint point = point_at(basis, network, n, alone, known);
    if (point.worth) point.faster_to_loss = worth_of(point) / now;
    forecast.points.push_back(point);
  }
  double before = worth_at(basis, network, 1, known);
  for (int n = 1; n < Forecast::kMostRanks; n *= 2) {
    const double twice = worth_at(basis, network, 2 * n, known);
    if (twice < Forecast::kWorthDoubling * before) {
      forecast.stops_paying_at = n;
      break;
    }
    before = twice;
  }
  return forecast;
}

}  // namespace redline::doctor
