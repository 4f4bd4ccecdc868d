// Gradient noise on the way, from norms that a step has at hand: the gradient of a step's first piece against that of
// all (McCandlish et al. 2018, appendix A.1), or, where a step is one piece, two consecutive steps as the halves of a
// step twice as large. Reads gradients, changes none.
//
// With G the true gradient and S the summed variance of one sample, a gradient over b samples has E|g|^2 = |G|^2 + S/b.
// Two sizes give both; their estimates are noisy and may be negative, so they are averaged over steps before one is
// divided by the other.
#pragma once

#include <torch/torch.h>

#include <span>
#include <vector>

namespace redline::train {

class NoiseWatch {
 public:
  struct Step {
    double samples = 0;           // of the step, or of both
    double gradient_squared = 0;  // estimates of |G|^2
    double variance = 0;          // and of S
  };

  void begin() { part_samples_ = 0; }
  bool wants_part() const { return part_samples_ == 0; }
  // Gradients of the first piece; `divisor`: they are too large by this.
  void part(std::span<const torch::Tensor> gradients, double divisor, int64_t samples);
  // Of the whole step; `norm` is that of the gradients already divided.
  void whole(std::span<const torch::Tensor> gradients, double divisor, double norm, int64_t samples);
  // What was seen since the last call.
  std::vector<Step> take();

 private:
  void add(double small_squared, double small_samples, double large_squared, double large_samples);

  double part_squared_ = 0, part_samples_ = 0;
  std::vector<torch::Tensor> last_;  // gradients of the step before, where steps are of one piece
  double last_squared_ = 0, last_samples_ = 0;
  std::vector<Step> steps_;
};

}  // namespace redline::train
