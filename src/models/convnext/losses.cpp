#include "models/convnext/losses.h"

#include <cmath>

namespace redline::models::convnext {

namespace {

torch::Tensor count_of(double count) { return torch::full({}, count, torch::kFloat32); }

// Euclidean distances [N, N]. The square root has no derivative at 0: those entries (a sample and itself, or equal
// ones) are 0 without a gradient.
torch::Tensor distances(const torch::Tensor& x) {
  const torch::Tensor squares = (x.unsqueeze(1) - x.unsqueeze(0)).pow(2).sum(2);
  const torch::Tensor zero = squares.le(0.0);
  return squares.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0);
}

struct Pairs {
  torch::Tensor positive, negative;  // bool [N, N]: same class and not oneself; another class
};
Pairs pairs_of(const torch::Tensor& labels) {
  const torch::Tensor same = labels.unsqueeze(1).eq(labels.unsqueeze(0));
  const torch::Tensor self = torch::eye(labels.size(0), torch::TensorOptions(torch::kBool).device(labels.device()));
  return {same.logical_and(self.logical_not()), same.logical_not()};
}

// The mean of `values` where `chosen`, 0 (with a gradient of 0) when there are none.
MeanLoss mean_where(const torch::Tensor& values, const torch::Tensor& chosen) {
  const torch::Tensor count = chosen.sum().to(torch::kFloat32);
  return {values.masked_fill(chosen.logical_not(), 0.0).sum() / count.clamp_min(1.0), count};
}

}  // namespace

torch::Tensor unit_rows(const torch::Tensor& x) { return x / x.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12); }

MeanLoss cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets, double label_smoothing) {
  return {torch::cross_entropy_loss(logits, targets, {}, at::Reduction::Mean, -100, label_smoothing),
          count_of(static_cast<double>(logits.size(0)))};
}

MeanLoss supervised_contrastive(const torch::Tensor& embedding, const torch::Tensor& labels,
                                const LossOptions& options) {
  const Pairs pairs = pairs_of(labels);
  const torch::Tensor others = pairs.positive.logical_or(pairs.negative);
  const torch::Tensor similarity = torch::mm(embedding, embedding.t()) / options.temperature;
  const torch::Tensor shifted = similarity - std::get<0>(similarity.detach().max(1, /*keepdim=*/true));
  // Oneself is left out before the exponential, so that a lone sample's sum is of nothing and its logarithm unused.
  const torch::Tensor sum = shifted.exp().masked_fill(others.logical_not(), 0.0).sum(1, /*keepdim=*/true);
  const torch::Tensor log_probability = shifted - sum.clamp_min(1e-30).log();
  const torch::Tensor positives = pairs.positive.sum(1);
  const torch::Tensor mean = log_probability.masked_fill(pairs.positive.logical_not(), 0.0).sum(1) /
                             positives.clamp_min(1).to(torch::kFloat32);
  return mean_where(-(options.temperature / options.base_temperature) * mean, positives.gt(0));
}

MeanLoss triplet(const torch::Tensor& embedding, const torch::Tensor& labels, const LossOptions& options) {
  const Pairs pairs = pairs_of(labels);
  const torch::Tensor distance = distances(embedding);
  if (options.triplet_mining == "batch_hard") {
    const torch::Tensor usable = pairs.positive.any(1).logical_and(pairs.negative.any(1));
    const torch::Tensor furthest = std::get<0>(distance.masked_fill(pairs.positive.logical_not(), 0.0).max(1));
    const torch::Tensor beyond = (distance.detach().max() + 1.0).expand_as(distance);
    const torch::Tensor nearest = std::get<0>(torch::where(pairs.negative, distance, beyond).min(1));
    return mean_where(torch::relu(furthest - nearest + options.triplet_margin), usable);
  }
  const torch::Tensor all = torch::relu(distance.unsqueeze(2) - distance.unsqueeze(1) + options.triplet_margin);
  const torch::Tensor usable = pairs.positive.unsqueeze(2).logical_and(pairs.negative.unsqueeze(1));
  return mean_where(all, usable.logical_and(all.detach().gt(0.0)));
}

torch::Tensor arcface_logits(const torch::Tensor& embedding, const torch::Tensor& class_weights,
                             const torch::Tensor& labels, const LossOptions& options) {
  const torch::Tensor cosine = torch::mm(unit_rows(embedding), unit_rows(class_weights).t());
  const torch::Tensor column = labels.unsqueeze(1);
  // acos has no derivative at +-1.
  const torch::Tensor right = cosine.gather(1, column).clamp(-1.0 + 1e-7, 1.0 - 1e-7), angle = right.acos();
  const double margin = options.arcface_margin;
  const torch::Tensor moved =
      torch::where(angle + margin <= M_PI, (angle + margin).cos(), right - margin * std::sin(margin));
  return cosine.scatter(1, column, moved) * options.arcface_scale;
}

torch::Tensor center_distance(const torch::Tensor& embedding, const torch::Tensor& centers,
                              const torch::Tensor& labels) {
  return (embedding - centers.index_select(0, labels)).pow(2).sum(1).mean();
}

}  // namespace redline::models::convnext
