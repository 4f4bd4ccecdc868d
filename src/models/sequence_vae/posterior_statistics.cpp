// Means and variances by Welford's update, so one pass suffices and large offsets do not cancel.
#include "models/sequence_vae/posterior_statistics.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace redline::models::sequence_vae {

double kl_of(double mean, double log_variance) {
  return 0.5 * (mean * mean + std::exp(log_variance) - log_variance - 1.0);
}

Information mutual_information(const Posteriors& batch) {
  constexpr double kLogTwoPi = 1.8378770664093454836;
  const auto n = static_cast<size_t>(batch.n), latent = static_cast<size_t>(batch.latent);
  if (n == 0) return {};
  std::vector<double> precision(n * latent), constant(n, 0.0), log_density(n);
  double conditional = 0.0;  // sum over examples of E[log q(z|x)]
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < latent; ++k) {
      const double lv = batch.log_variance[i * latent + k];
      precision[i * latent + k] = std::exp(-lv);
      constant[i] -= 0.5 * (lv + kLogTwoPi);
      conditional -= 0.5 * (kLogTwoPi + 1.0 + lv);
    }
  double aggregate = 0.0, own = 0.0;  // sums over draws of log q(z) and of log q(z|x)
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double distance = 0.0;
      for (size_t k = 0; k < latent; ++k) {
        const double d = static_cast<double>(batch.draw[i * latent + k]) - batch.mean[j * latent + k];
        distance += d * d * precision[j * latent + k];
      }
      log_density[j] = constant[j] - 0.5 * distance;
    }
    const double top = *std::max_element(log_density.begin(), log_density.end());
    double sum = 0.0;
    for (double value : log_density) sum += std::exp(value - top);
    aggregate += top + std::log(sum) - std::log(static_cast<double>(n));
    own += log_density[i];
  }
  return {(conditional - aggregate) / static_cast<double>(n), (own - aggregate) / static_cast<double>(n)};
}

void PosteriorStatistics::add(const Posteriors& batch, const std::optional<Information>& information) {
  const size_t latent = kl_sum_.size();
  REDLINE_CHECK(static_cast<size_t>(batch.latent) == latent, "posteriors of one model have one latent size");
  for (size_t i = 0; i < static_cast<size_t>(batch.n); ++i) {
    ++count_;
    for (size_t k = 0; k < latent; ++k) {
      const double mean = batch.mean[i * latent + k];
      kl_sum_[k] += kl_of(mean, batch.log_variance[i * latent + k]);
      const double delta = mean - mean_[k];
      mean_[k] += delta / static_cast<double>(count_);
      square_[k] += delta * (mean - mean_[k]);
    }
  }
  if (!information) return;
  information_sum_.closed_form += information->closed_form * static_cast<double>(batch.n);
  information_sum_.paired += information->paired * static_cast<double>(batch.n);
  information_count_ += batch.n;
}

// count, information (count, closed form, paired), then KL, means and squares by dimension.
std::vector<double> PosteriorStatistics::sums() const {
  const auto n = static_cast<double>(count_);
  std::vector<double> out = {n, static_cast<double>(information_count_), information_sum_.closed_form,
                             information_sum_.paired};
  out.insert(out.end(), kl_sum_.begin(), kl_sum_.end());
  for (const double mean : mean_) out.push_back(mean * n);
  for (size_t k = 0; k < mean_.size(); ++k) out.push_back(square_[k] + mean_[k] * mean_[k] * n);
  return out;
}

PosteriorStatistics PosteriorStatistics::of_sums(std::span<const double> sums) {
  constexpr size_t kFirst = 4;
  REDLINE_CHECK(sums.size() >= kFirst && (sums.size() - kFirst) % 3 == 0, "sums of posteriors have three a dimension");
  const size_t latent = (sums.size() - kFirst) / 3;
  PosteriorStatistics out(static_cast<int64_t>(latent));
  out.count_ = std::llround(sums[0]);
  out.information_count_ = std::llround(sums[1]);
  out.information_sum_ = {sums[2], sums[3]};
  for (size_t k = 0; k < latent && out.count_ > 0; ++k) {
    out.kl_sum_[k] = sums[kFirst + k];
    out.mean_[k] = sums[kFirst + latent + k] / sums[0];
    out.square_[k] = std::max(0.0, sums[kFirst + 2 * latent + k] - out.mean_[k] * sums[kFirst + latent + k]);
  }
  return out;
}

std::vector<double> PosteriorStatistics::kl_per_dim() const {
  std::vector<double> out = kl_sum_;
  for (double& value : out) value = count_ > 0 ? value / static_cast<double>(count_) : 0.0;
  return out;
}

double PosteriorStatistics::kl() const {
  double total = 0.0;
  for (double value : kl_per_dim()) total += value;
  return total;
}

std::vector<double> PosteriorStatistics::variance_of_means() const {
  std::vector<double> out = square_;
  for (double& value : out) value = count_ > 1 ? value / static_cast<double>(count_ - 1) : 0.0;
  return out;
}

int64_t PosteriorStatistics::active_units(double threshold) const {
  const std::vector<double> variance = variance_of_means();
  return std::count_if(variance.begin(), variance.end(), [&](double v) { return v >= threshold; });
}

std::optional<Information> PosteriorStatistics::information_mean() const {
  if (information_count_ == 0) return std::nullopt;
  const auto count = static_cast<double>(information_count_);
  return Information{information_sum_.closed_form / count, information_sum_.paired / count};
}

}  // namespace redline::models::sequence_vae
