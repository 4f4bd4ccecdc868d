// One Gaussian model of log speed: every switch has an effect, every two switches an interaction, the doctor's
// predictions are the prior and blocks of two settings are the data. Effects are never written out: what two settings
// share (a kernel over settings) is all that their covariance needs, so interactions of all pairs cost nothing.
//
// A block of A and B sees f(B) - f(A) + noise (block_noise.h), so what slows the machine for both is gone.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "doctor/setting.h"
#include "tune/search/block_noise.h"
#include "tune/search/cholesky.h"

namespace redline::tune {

// For each group the value that is set (an index of the switches), or none.
using Combination = std::vector<int>;
inline constexpr int kNoValue = -1;

struct ModelSwitch {
  size_t group = 0;
  double gain = 0, deviation = 0.02;  // predicted, log scale
  doctor::WorksOn part = doctor::WorksOn::Other;
};

struct Contrast {
  Combination a, b;  // f(b) - f(a)
  auto operator<=>(const Contrast&) const = default;
};

struct Belief {
  double mean = 0, deviation = 0;  // log scale
};

class SpeedModel {
 public:
  // `predicted`: of a combination against the reference, log scale.
  SpeedModel(std::vector<ModelSwitch> switches, std::function<double(const Combination&)> predicted);

  void add(const Contrast& contrast, double log_ratio);
  // Blocks of two settings from before: only their noise is used, since the predictions rest on the rest.
  void add_noise(const std::vector<double>& log_ratios);

  // A contrast with all that its covariances with others need.
  struct View {
    Contrast contrast;
    Belief prior, now;
    std::vector<double> white;  // its covariance with the data, decorrelated
  };
  View view(const Contrast& contrast) const;
  double mean(const Combination& combination) const;      // against the reference; the same as view(), cheaper
  double covariance(const View& a, const View& b) const;  // as believed now

  // What the blocks alone say of a contrast, the prediction of it taken out again; no information: deviation is
  // infinite.
  static Belief from_blocks(const View& view);
  // Variance that the mean of `more` new blocks of a contrast would add to what is not known of it.
  double noise_of(const Contrast& contrast, int more) const;
  const BlockNoise& noise() const { return noise_; }
  int blocks() const { return blocks_; }
  int blocks_of(const Contrast& contrast) const;

 private:
  double kernel(const Combination& a, const Combination& b) const;
  double prior_covariance(const Contrast& a, const Contrast& b) const;
  double effects(int a, int b) const;
  void refit();

  struct Way {
    Contrast contrast;
    double sign;
  };
  static Way way_of(const Contrast& contrast);
  struct Pair {
    Contrast contrast;
    std::vector<Stretch> stretches;
    double prior_mean = 0;
  };

  std::vector<ModelSwitch> switches_;
  std::function<double(const Combination&)> predicted_;
  std::vector<Pair> pairs_;
  std::vector<Stretch> earlier_;
  std::map<Contrast, size_t> places_;
  BlockNoise noise_;
  Cholesky factor_;
  std::vector<double> white_misses_, solved_misses_;
  int blocks_ = 0, fitted_blocks_ = 0;
};

}  // namespace redline::tune
