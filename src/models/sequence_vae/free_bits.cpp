#include "models/sequence_vae/free_bits.h"

#include "core/check.h"

namespace redline::models::sequence_vae {

torch::Tensor kl_per_dimension(const torch::Tensor& mean, const torch::Tensor& log_variance) {
  return (mean.square() + log_variance.exp() - log_variance - 1.0) * 0.5;
}

torch::Tensor kl_penalty(const torch::Tensor& kl, const FreeBitsOptions& options) {
  const double share = options.target_kl / static_cast<double>(kl.size(1));
  const torch::Tensor per_example = kl.sum(1);
  const auto kept = [](const torch::Tensor& value, double limit) {
    return value * (value.detach() > limit).to(value.options());
  };
  if (options.mode == "none") return per_example.mean();
  if (options.mode == "per_example") return kept(per_example, options.target_kl).mean();
  if (options.mode == "per_dimension") return kept(kl, share).sum(1).mean();
  if (options.mode == "per_batch") return kept(per_example.mean(), options.target_kl);
  REDLINE_CHECK(options.mode == "clamp", "the field table allows no other mode");
  return kl.mean(0).clamp_min(share).sum();
}

bool looks_across_batch(const FreeBitsOptions& options) {
  return options.mode == "per_batch" || options.mode == "clamp";
}

}  // namespace redline::models::sequence_vae
