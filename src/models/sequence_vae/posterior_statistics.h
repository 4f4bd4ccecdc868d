// What a set of Gaussian posteriors says about the latent space: KL to the prior, active units, mutual information.
// Streamed batch by batch in double precision with memory that does not grow; free of torch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace redline::models::sequence_vae {

// n posteriors with diagonal covariance and one draw from each, row-major [n, latent].
struct Posteriors {
  int64_t n = 0, latent = 0;
  std::span<const float> mean, log_variance, draw;
};

// KL(q(z|x) || N(0, I)) of one dimension: (mean^2 + var - log var - 1) / 2, nats.
double kl_of(double mean, double log_variance);

// I_q(x; z) estimated on n posteriors, in two ways. Neither can exceed log n by more than its noise, so n belongs to
// the number. 0 for n = 0.
struct Information {
  // E[log q(z|x)] in closed form minus the mean log of the aggregate at the draws (Hoffman & Johnson 2016; He et al.
  // 2019). The noise of the draws is in one term only: its standard deviation is about sqrt(latent / 2n), so few
  // posteriors of many dimensions that carry nothing may well give -0.7 nats.
  double closed_form = 0.0;
  // log q(z|x) at the same draws: the noise cancels (equal posteriors give exactly 0), which a verdict needs.
  double paired = 0.0;
};
Information mutual_information(const Posteriors& batch);

class PosteriorStatistics {
 public:
  explicit PosteriorStatistics(int64_t latent)
      : kl_sum_(static_cast<size_t>(latent)), mean_(kl_sum_), square_(kl_sum_) {}
  // `information` is the batch's mutual information, weighted by its size (none: not estimated).
  void add(const Posteriors& batch, const std::optional<Information>& information);

  // All of it as sums: those of several ranks are added, and the result is the statistics of all their examples.
  std::vector<double> sums() const;
  static PosteriorStatistics of_sums(std::span<const double> sums);

  int64_t count() const { return count_; }
  std::vector<double> kl_per_dim() const;               // means over all examples
  double kl() const;                                    // their sum
  std::vector<double> variance_of_means() const;        // unbiased, over all examples (two or more)
  int64_t active_units(double threshold = 0.01) const;  // dimensions whose variance reaches the threshold
  std::optional<Information> information_mean() const;  // weighted by batch sizes; none when never estimated

 private:
  int64_t count_ = 0;
  std::vector<double> kl_sum_, mean_, square_;
  Information information_sum_;
  int64_t information_count_ = 0;
};

}  // namespace redline::models::sequence_vae
