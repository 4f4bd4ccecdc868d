// What another plan of the same samples (larger pieces, buckets, padding) would gain: from its numbers of pieces and
// padding, and from what those cost. Values that shape the plan are predicted together, since a larger batch pads more
// and buckets take that away again; so is a precision, which makes items cheaper but each piece dearer, by the weights
// that are rounded for it. Pure; plans come in as a function.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "doctor/job_view.h"
#include "doctor/observation.h"

namespace redline::doctor {

// Share of padding and micro-batches of a step under a setting, from its plan; nullopt when that plan cannot be made.
struct PlanShape {
  double padding_share = 0, micro_batches_per_step = 1, samples_per_step = 1;
};
using PlanShapeOf = std::function<std::optional<PlanShape>(const Setting&)>;

// Where no plan can be made (a record without its data): pieces as the setting cuts them, and buckets that take most of
// the padding seen.
PlanShapeOf assumed_plan(const JobView& job, const Observation& seen);

class PlanModel {
 public:
  // `assumed`: the shapes are assumed_plan's.
  PlanModel(const Observation& seen, PlanShapeOf plan_shape, bool assumed = false);
  // 0.1 = a tenth faster than the reference; 0 where the plan cannot be made.
  double gain(const Setting& setting) const;
  double deviation(const Setting& setting) const;  // of log(1 + gain)
  // Whether what a precision does to an item was raced; only then gain() can speak of it.
  bool knows_precision(const std::string& precision) const;

 private:
  void anchor();
  double seen_samples() const;
  double around_compute(double samples) const;
  SampleCost sample_cost(const PlanShape& shape, double seconds) const;
  // What a precision does to a piece and to an item.
  struct PrecisionCost {
    double piece_seconds = 0, item_factor = 1;
  };
  struct BeforeAndAfter {
    SampleCost before, after;
  };
  PrecisionCost costs_of_precision(const BeforeAndAfter& as_is, const std::optional<BeforeAndAfter>& larger) const;
  double fitted_compute(const PlanShape& shape, const PrecisionCost& precision) const;
  PrecisionCost precision_cost(const Setting& setting) const;

  Observation seen_;
  PlanShapeOf plan_shape_;
  bool assumed_ = false;
  std::optional<PlanShape> reference_;
  double compute_ = 0, per_step_ = 0;
  std::string precision_;  // that was raced
  PrecisionCost precision_cost_;
  mutable std::map<Setting, double> known_;
};

}  // namespace redline::doctor
