#include "tune/search/speed_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace redline::tune {

namespace {

// Priors of what is not predicted, log scale: seen in the ledgers of bench/results, where what a switch gained in
// company differed from what it gained alone by up to 0.27 among those that shape the computing, by 0.04 elsewhere.
constexpr double kWithin = 0.08, kBetween = 0.02;
constexpr double kAlike = 0.7;   // how far two values of a switch interact alike
constexpr double kOwn = 0.025;   // what each value of a switch may be off by itself
constexpr double kSurprise = 4;  // deviations
constexpr int kMostGap = 10;     // blocks: beyond, the slow noise is new
constexpr size_t kLongest = 40;  // blocks of a stretch

}  // namespace

SpeedModel::SpeedModel(std::vector<ModelSwitch> switches, std::function<double(const Combination&)> predicted)
    : switches_(std::move(switches)), predicted_(std::move(predicted)) {}

// Values of one switch are predicted by one formula: what it misses by is the same for all of them, but for a little.
double SpeedModel::effects(int a, int b) const {
  const ModelSwitch &x = switches_[static_cast<size_t>(a)], &y = switches_[static_cast<size_t>(b)];
  if (a == b) return x.deviation * x.deviation;
  const auto common = [](const ModelSwitch& s) {
    const double own = std::min(s.deviation, kOwn);
    return std::copysign(std::sqrt(s.deviation * s.deviation - own * own), s.gain);
  };
  return common(x) * common(y);
}

double SpeedModel::kernel(const Combination& a, const Combination& b) const {
  const auto shares = [&](size_t g) {
    return a[g] == kNoValue || b[g] == kNoValue ? 0.0 : a[g] == b[g] ? 1.0 : kAlike;
  };
  double sum = 0;
  for (size_t g = 0; g < a.size(); ++g) {
    const double same = shares(g);
    if (same == 0) continue;
    sum += effects(a[g], b[g]);
    const doctor::WorksOn part = switches_[static_cast<size_t>(a[g])].part;
    for (size_t h = g + 1; h < a.size(); ++h) {
      const double both = same * shares(h);
      if (both == 0) continue;
      const doctor::WorksOn other = switches_[static_cast<size_t>(a[h])].part;
      const double deviation = part == other && other != doctor::WorksOn::Other ? kWithin : kBetween;
      sum += both * deviation * deviation;
    }
  }
  return sum;
}

double SpeedModel::prior_covariance(const Contrast& x, const Contrast& y) const {
  return kernel(x.b, y.b) - kernel(x.b, y.a) - kernel(x.a, y.b) + kernel(x.a, y.a);
}

// Two settings are one pair, whichever challenges the other.
SpeedModel::Way SpeedModel::way_of(const Contrast& contrast) {
  return contrast.b < contrast.a ? Way{{contrast.b, contrast.a}, -1} : Way{contrast, 1};
}

void SpeedModel::add(const Contrast& either_way, double log_ratio) {
  const auto [contrast, sign] = way_of(either_way);
  // What nobody would have believed is believed when it comes again, and shows that the predictions of what differs
  // here were known less well than they said.
  const View before = view(contrast);
  const double usual = kSurprise * std::hypot(before.now.deviation, std::sqrt(noise_.variance));
  const double off = std::abs(sign * log_ratio - before.now.mean);
  for (size_t g = 0; g < contrast.a.size() && off > usual; ++g)
    for (const int value : {contrast.a[g], contrast.b[g]})
      if (contrast.a[g] != contrast.b[g] && value != kNoValue) {
        double& deviation = switches_[static_cast<size_t>(value)].deviation;
        deviation = std::max(deviation, off / 2);
      }
  const auto [place, added] = places_.try_emplace(contrast, pairs_.size());
  if (added) pairs_.push_back({contrast, {}, predicted_(contrast.b) - predicted_(contrast.a)});
  std::vector<Stretch>& stretches = pairs_[place->second].stretches;
  if (stretches.empty() || stretches.back().times.size() >= kLongest ||
      blocks_ - stretches.back().times.back() > kMostGap)
    stretches.emplace_back();
  stretches.back().times.push_back(blocks_++);
  stretches.back().values.push_back(sign * log_ratio);
  stretches.back().weights.push_back(off > usual ? std::pow(usual / off, 2) : 1.0);
  refit();
}

void SpeedModel::add_noise(const std::vector<double>& log_ratios) {
  Stretch stretch;
  for (const double value : log_ratios) {
    stretch.times.push_back(static_cast<int>(stretch.times.size()));
    stretch.values.push_back(value);
    stretch.weights.push_back(1);
  }
  earlier_.push_back(std::move(stretch));
  noise_ = fit_noise(earlier_);
}

void SpeedModel::refit() {
  if (blocks_ < 20 || 10 * (blocks_ - fitted_blocks_) >= fitted_blocks_) {
    std::vector<Stretch> all = earlier_;
    for (const Pair& pair : pairs_) all.insert(all.end(), pair.stretches.begin(), pair.stretches.end());
    noise_ = fit_noise(all);
    fitted_blocks_ = blocks_;
  }
  const size_t n = pairs_.size();
  std::vector<double> matrix(n * n), misses(n);
  for (size_t i = 0; i < n; ++i) {
    double information = 0, sum = 0;
    for (const Stretch& stretch : pairs_[i].stretches) {
      const StretchSummary said = summarise(stretch, noise_);
      information += said.information;
      sum += said.information * said.mean;
    }
    misses[i] = sum / information - pairs_[i].prior_mean;
    for (size_t j = 0; j <= i; ++j) matrix[i * n + j] = prior_covariance(pairs_[i].contrast, pairs_[j].contrast);
    matrix[i * n + i] += 1 / information;
  }
  factor_ = Cholesky(std::move(matrix), n);
  solved_misses_ = factor_.solve(misses);
  white_misses_ = factor_.lower_solve(std::move(misses));
}

SpeedModel::View SpeedModel::view(const Contrast& contrast) const {
  View view{contrast, {}, {}, std::vector<double>(pairs_.size())};
  for (size_t i = 0; i < pairs_.size(); ++i) view.white[i] = prior_covariance(contrast, pairs_[i].contrast);
  view.white = factor_.lower_solve(std::move(view.white));
  const double variance = prior_covariance(contrast, contrast);
  view.prior = {predicted_(contrast.b) - predicted_(contrast.a), std::sqrt(std::max(0.0, variance))};
  view.now = {view.prior.mean + dot(view.white, white_misses_),
              std::sqrt(std::max(0.0, variance - dot(view.white, view.white)))};
  return view;
}

double SpeedModel::mean(const Combination& combination) const {
  double sum = predicted_(combination);
  for (size_t i = 0; i < pairs_.size(); ++i)
    sum += solved_misses_[i] * (kernel(combination, pairs_[i].contrast.b) - kernel(combination, pairs_[i].contrast.a));
  return sum;
}

double SpeedModel::covariance(const View& a, const View& b) const {
  return prior_covariance(a.contrast, b.contrast) - dot(a.white, b.white);
}

Belief SpeedModel::from_blocks(const View& view) {
  const double before = std::pow(view.prior.deviation, -2), now = std::pow(view.now.deviation, -2);
  if (!(now - before > 1e-3 * before)) return {view.now.mean, std::numeric_limits<double>::infinity()};
  return {(view.now.mean * now - view.prior.mean * before) / (now - before), 1 / std::sqrt(now - before)};
}

double SpeedModel::noise_of(const Contrast& contrast, int more) const {
  const auto place = places_.find(way_of(contrast).contrast);
  const Stretch* last = place == places_.end() ? nullptr : &pairs_[place->second].stretches.back();
  if (last == nullptr || blocks_ - last->times.back() > kMostGap || last->times.size() >= kLongest)
    return 1 / information_after({}, more, noise_);
  const double now = information_after(*last, 0, noise_), then = information_after(*last, more, noise_);
  return 1 / std::max(1e-9, then - now);
}

int SpeedModel::blocks_of(const Contrast& contrast) const {
  const auto place = places_.find(way_of(contrast).contrast);
  if (place == places_.end()) return 0;
  int count = 0;
  for (const Stretch& stretch : pairs_[place->second].stretches) count += static_cast<int>(stretch.times.size());
  return count;
}

}  // namespace redline::tune
