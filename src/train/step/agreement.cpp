#include "train/step/agreement.h"

#include <cmath>

namespace redline::train {

double Alone::reference_weight(double weight, int64_t expected_pieces) {
  if (weight == 0.0 || expected_pieces == 1) return weight;
  return std::exp2(std::ceil(std::log2(weight * static_cast<double>(expected_pieces))));
}

torch::Tensor Alone::reference_weight(const torch::Tensor& weight, int64_t expected_pieces) {
  return torch::clamp_min(weight * static_cast<double>(expected_pieces), 1e-30);
}

}  // namespace redline::train
