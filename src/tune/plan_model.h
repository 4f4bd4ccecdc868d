// What another plan of the same samples (larger pieces, buckets, padding) would gain: from its numbers of pieces and
// padding, and from what those cost. Values that shape the plan are predicted together, since a larger batch pads more
// and buckets take that away again; so is a precision, which makes items cheaper but each piece dearer, by the weights
// that are rounded for it. Pure; plans come in as a function.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "tune/observed.h"

namespace redline::tune {

// Share of padding and micro-batches of a step under a setting, from its plan; nullopt when that plan cannot be made.
struct PlanShape {
  double padding_share = 0, micro_batches_per_step = 1, samples_per_step = 1;
};
using PlanShapeOf = std::function<std::optional<PlanShape>(const Setting&)>;

class PlanModel {
 public:
  PlanModel(const Observed& observed, PlanShapeOf plan_shape);
  // 0.1 = a tenth faster than the reference; 0 where the plan cannot be made.
  double gain(const Setting& setting) const;
  // Whether what a precision does to an item was raced; only then gain() can speak of it.
  bool knows_precision(const std::string& precision) const;
  // A step of the whole run: what was observed, with the cadences at the rate they come.
  double step_seconds() const { return step_; }

 private:
  void anchor();
  double seen_samples() const;
  double around_compute(double samples) const;
  SampleCost sample_cost(const PlanShape& shape, double seconds) const;
  // What a precision does to a piece and to an item.
  struct PrecisionCost {
    double piece_seconds = 0, item_factor = 1;
  };
  double fitted_compute(const PlanShape& shape, const PrecisionCost& precision) const;
  PrecisionCost precision_cost(const Setting& setting) const;

  Observed o_;
  PlanShapeOf plan_shape_;
  std::optional<PlanShape> reference_;
  double compute_ = 0, per_step_ = 0, step_ = 0;
  std::string precision_;  // that was raced
  PrecisionCost precision_cost_;
  mutable std::map<Setting, double> known_;
};

}  // namespace redline::tune
