#include "train/step/noise_watch.h"

#include <cmath>

#include "train/optim/gradients.h"

namespace redline::train {

void NoiseWatch::add(double small_squared, double small_samples, double large_squared, double large_samples) {
  if (!(large_samples > small_samples) || !std::isfinite(small_squared) || !std::isfinite(large_squared)) return;
  steps_.push_back({large_samples,
                    (large_samples * large_squared - small_samples * small_squared) / (large_samples - small_samples),
                    (small_squared - large_squared) / (1 / small_samples - 1 / large_samples)});
}

void NoiseWatch::part(std::span<const torch::Tensor> gradients, double divisor, int64_t samples) {
  if (samples < 1 || divisor == 0.0) return;
  const double norm = check_gradients(gradients).norm / divisor;
  part_squared_ = norm * norm;
  part_samples_ = static_cast<double>(samples);
}

void NoiseWatch::whole(std::span<const torch::Tensor> gradients, double divisor, double norm, int64_t samples) {
  const auto all = static_cast<double>(samples);
  if (part_samples_ > 0) {
    add(part_squared_, part_samples_, norm * norm, all);
    last_.clear();
    return;
  }
  const torch::NoGradGuard no_grad;
  if (!last_.empty()) {
    double dot = 0;
    for (size_t i = 0; i < gradients.size() && i < last_.size(); ++i)
      if (gradients[i].defined() && last_[i].defined())
        dot += (gradients[i].flatten() * last_[i].flatten()).sum(torch::kFloat64).item<double>() / divisor;
    // Weighted as one step over the samples of both would be.
    const double sum = all + last_samples_, a = all / sum, b = last_samples_ / sum;
    const double both = a * a * norm * norm + b * b * last_squared_ + 2 * a * b * dot;
    add(a * norm * norm + b * last_squared_, sum / 2, both, sum);
    last_.clear();
    return;
  }
  for (const torch::Tensor& gradient : gradients)
    last_.push_back(gradient.defined() ? gradient / divisor : torch::Tensor());
  last_squared_ = norm * norm;
  last_samples_ = all;
}

std::vector<NoiseWatch::Step> NoiseWatch::take() { return std::exchange(steps_, {}); }

}  // namespace redline::train
