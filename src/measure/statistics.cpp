// The percentile bootstrap is too narrow for few values; Hesterberg (2015), "What Teachers Should Know About the
// Bootstrap", section 4.3, widens the percentiles to Phi(-sqrt(n/(n-1)) t) with t from Student's distribution. Draws
// are Philox, so a verdict repeats.
#include "measure/statistics.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/philox.h"
#include "measure/student.h"

namespace redline::measure {
namespace {

constexpr int kResamples = 2000;

// The lower tail that makes a percentile interval of n values cover what it claims.
double expanded_tail(double confidence, size_t n) {
  const double tail = (1 - confidence) / 2;
  if (n > 200) return tail;
  const double t = student_quantile(1 - tail, static_cast<int>(n) - 1);
  return normal_cdf(-std::sqrt(static_cast<double>(n) / static_cast<double>(n - 1)) * t);
}

// Resampling never leaves the range of the values, and n values lie on one side of the truth by chance with probability
// 2^-n each way: below 5 that is more than the 5 % we may be wrong. Then Student's interval, at least the range.
constexpr size_t kFewestToResample = 5;

Interval few_values_interval(std::span<const double> values, double centre, double confidence) {
  const size_t n = values.size();
  if (n == 1) return {centre - std::abs(centre), centre + std::abs(centre)};
  double squares = 0;
  const double middle = mean(values);
  for (double value : values) squares += (value - middle) * (value - middle);
  const double t = student_quantile(1 - (1 - confidence) / 2, static_cast<int>(n) - 1);
  const double half = t * std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {std::min(*low, centre - half), std::max(*high, centre + half)};
}

// On a vector we may reorder.
double median_of(std::vector<double>& values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle))) / 2;
}

}  // namespace

double median(std::span<const double> values) {
  REDLINE_CHECK(!values.empty(), "a median needs a value");
  std::vector<double> copy(values.begin(), values.end());
  return median_of(copy);
}

double quantile(std::span<const double> values, double q) {
  REDLINE_CHECK(!values.empty() && q >= 0 && q <= 1, "a quantile needs a value and 0 <= q <= 1");
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = place - static_cast<double>(below);
  return share == 0 ? sorted[below] : sorted[below] + share * (sorted[above] - sorted[below]);
}

double mean(std::span<const double> values) {
  REDLINE_CHECK(!values.empty(), "a mean needs a value");
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double robust_spread(std::span<const double> values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * median_of(distances);  // 1 / Phi^-1(3/4)
}

Interval bootstrap(std::span<const double> values, const Statistic& statistic, double confidence, uint64_t seed) {
  REDLINE_CHECK(!values.empty() && confidence > 0 && confidence < 1,
                "a bootstrap needs a value and 0 < confidence < 1");
  const size_t n = values.size();
  if (n < kFewestToResample) return few_values_interval(values, statistic(values), confidence);
  KeyedStream draws(seed, n, 0, 0);
  std::vector<double> statistics, sample(n);
  statistics.reserve(kResamples);
  for (int i = 0; i < kResamples; ++i) {
    for (double& value : sample) value = values[static_cast<size_t>(draws.uniform_int(0, static_cast<int64_t>(n) - 1))];
    statistics.push_back(statistic(sample));
  }
  const double tail = expanded_tail(confidence, n);
  return {quantile(statistics, tail), quantile(statistics, 1 - tail)};
}

Interval bootstrap_median(std::span<const double> values, double confidence, uint64_t seed) {
  return bootstrap(
      values, [](std::span<const double> sample) { return median(sample); }, confidence, seed);
}

double correlation_factor(std::span<const double> values, const BlockCorrelation& known) {
  constexpr double kMost = 0.8;
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2) return 1;
  const double middle = mean(values);
  double squares = 0, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += (values[i] - middle) * (values[i] - middle);
    if (i > 0) neighbours += (values[i] - middle) * (values[i - 1] - middle);
  }
  double own = squares > 0 ? neighbours / squares : 0;
  own += (1 + 3 * std::max(0.0, own)) / n;  // a mean of so few hides that much of it (Marriott and Pope 1954)
  const double lag_one = std::clamp((n * own + known.blocks * known.lag_one) / (n + known.blocks), 0.0, kMost);
  double factor = 1;  // n times the variance of the mean over that of a value
  for (double k = 1; k < n; ++k) factor += 2 * (1 - k / n) * std::pow(lag_one, k);
  // The spread about their own mean is smaller than theirs, by what the mean took along.
  const double seen = std::max(0.2, (1 - factor / n) / (1 - 1 / n));
  return std::sqrt(factor / seen);
}

RatioEstimate compare_blocks(std::span<const double> a, std::span<const double> b, double confidence, uint64_t seed,
                             const BlockCorrelation& known) {
  REDLINE_CHECK(a.size() == b.size() && !a.empty(), "both variants run in every block");
  // Ratios within a block cancel what slowed both of its runs; on the log scale faster and slower are alike.
  std::vector<double> logs;
  for (size_t i = 0; i < a.size(); ++i) {
    REDLINE_CHECK(a[i] > 0 && b[i] > 0, "a run takes time");
    logs.push_back(std::log(a[i] / b[i]));
  }
  const Interval interval = bootstrap_median(logs, confidence, seed);
  const double middle = median(logs), wider = correlation_factor(logs, known);
  RatioEstimate estimate;
  estimate.ratio = std::exp(middle);
  estimate.interval = {std::exp(middle - wider * (middle - interval.low)),
                       std::exp(middle + wider * (interval.high - middle))};
  if (logs.size() == 1) estimate.interval = {estimate.ratio / 2, estimate.ratio * 2};  // one block proves nothing
  estimate.blocks = static_cast<int>(a.size());
  return estimate;
}

Verdict judge(const RatioEstimate& estimate) {
  if (estimate.interval.low > 1 - kNoEffect && estimate.interval.high < 1 + kNoEffect) return Verdict::NoEffect;
  if (estimate.interval.low > 1) return Verdict::Faster;
  if (estimate.interval.high < 1) return Verdict::Slower;
  return Verdict::Undecided;
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::Faster:
      return "faster";
    case Verdict::NoEffect:
      return "no effect";
    case Verdict::Slower:
      return "slower";
    case Verdict::Undecided:
      return "undecided";
  }
  return "?";
}

std::vector<int> interleaved_order(int variants, int block) {
  REDLINE_CHECK(variants >= 1 && block >= 0, "a block has variants and a number");
  std::vector<int> order;
  for (int i = 0; i < variants; ++i) order.push_back((i + block) % variants);
  for (int i = variants - 1; i >= 0; --i) order.push_back(order[static_cast<size_t>(i)]);
  return order;
}

}  // namespace redline::measure
