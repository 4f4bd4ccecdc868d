#include "train/step/agreement.h"

#include <cmath>

#include "core/time.h"
#include "train/signals.h"

namespace redline::train {

std::unique_ptr<GradientSync> Agreement::sync_gradients(task::Task&, const measure::StepClock&) { return nullptr; }

int64_t Agreement::pieces(int64_t mine, bool) { return mine; }

int Agreement::stop_signal() const { return StopFlag::signal(); }

int64_t Agreement::now_ns() const { return redline::now_ns(); }

double Alone::reference_weight(double weight, int64_t expected_pieces) {
  if (weight == 0.0 || expected_pieces == 1) return weight;
  return std::exp2(std::ceil(std::log2(weight * static_cast<double>(expected_pieces))));
}

torch::Tensor Alone::reference_weight(const torch::Tensor& weight, int64_t expected_pieces) {
  return torch::clamp_min(weight * static_cast<double>(expected_pieces), 1e-30);
}

}  // namespace redline::train
