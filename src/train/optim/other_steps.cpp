#include "train/optim/other_steps.h"

#include <cmath>
#include <limits>

namespace redline::train {

void lion_step(torch::Tensor value, const torch::Tensor& grad, torch::Tensor average, const OtherRates& rates) {
  const torch::Tensor direction =
      (average * rates.beta1).add_(grad, (1.0 - rates.beta1) * rates.gradient_scale).sign_();
  value.mul_(1.0 - rates.lr * rates.weight_decay).add_(direction, -rates.lr);
  average.mul_(rates.beta2).add_(grad, (1.0 - rates.beta2) * rates.gradient_scale);
}

void adafactor_step(torch::Tensor value, const torch::Tensor& grad, torch::Tensor rows, torch::Tensor columns,
                    int64_t step, const OtherRates& rates) {
  constexpr double kDecay = -0.8, kClip = 1.0, kLeastSize = 1e-3;
  const double least = std::numeric_limits<float>::epsilon();
  const torch::Tensor scaled = grad * rates.gradient_scale;
  const auto count = static_cast<double>(value.numel());
  const double fresh = std::pow(static_cast<double>(step), kDecay);
  const double relative = std::min(rates.lr, 1.0 / std::sqrt(static_cast<double>(step)));
  const double rate = std::max(kLeastSize, value.norm().item<double>() / std::sqrt(count)) * relative;
  if (rates.weight_decay != 0.0) value.mul_(1.0 - rates.lr * rates.weight_decay);
  torch::Tensor variance;
  if (value.dim() > 1) {
    rows.lerp_(scaled.square().mean(-1, /*keepdim=*/true), fresh);
    columns.lerp_(scaled.square().mean(-2, /*keepdim=*/true), fresh);
    variance = rows.matmul(columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_min(least));
  } else {
    rows.lerp_(scaled.square(), fresh);
    variance = rows.clone();
  }
  const torch::Tensor update = variance.clamp_min_(least * least).rsqrt_().mul_(scaled);
  const double shrink = std::max(1.0, update.norm().item<double>() / (std::sqrt(count) * kClip));
  value.add_(update, -rate / shrink);
}

std::pair<std::vector<int64_t>, std::vector<int64_t>> factored_shapes(const torch::Tensor& value) {
  if (value.dim() <= 1) return {value.sizes().vec(), {0}};
  std::vector<int64_t> rows = value.sizes().vec(), columns = rows;
  rows.back() = 1;
  columns[columns.size() - 2] = 1;
  return {rows, columns};
}

}  // namespace redline::train
