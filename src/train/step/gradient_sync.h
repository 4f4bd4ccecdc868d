// How the gradients of several ranks become one sum while the last piece of a step goes backward. Implemented in
// train/ranks; one process has none.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <optional>

#include "measure/reduce_timeline.h"
#include "task/context.h"

namespace redline::train {

class GradientSync {
 public:
  virtual ~GradientSync() = default;
  // A pass over the pieces of a step begins.
  virtual void begin() = 0;
  // The next piece begins; returns what its BatchNorm layers span ranks by, or null. `counts` false: a sample that only
  // keeps the others company, whose statistics are of no one.
  virtual task::Collective* begin_piece(bool counts) = 0;
  // Its forward is over.
  virtual void end_forward() = 0;
  // Runs `backward` of the step's last piece; when it returns, gradients are the sum over ranks.
  virtual void last_backward(const torch::Tensor& loss, const std::function<void()>& backward) = 0;
  // This rank could not compute its piece: takes part in what the others still do in it, with zeros; calls `between`
  // where they are between forward and backward. Throws when it cannot know what they do.
  virtual void keep_company(bool last, const std::function<void()>& between) = 0;
  // All ranks have given the pass up.
  virtual void abandon() = 0;
  // How the exchange of the step went that was made last, all its exchanges since the last call included; once.
  virtual std::optional<measure::ReduceTimeline> take_timeline() { return std::nullopt; }
};

}  // namespace redline::train
