#include "tune/plan_model.h"

#include <algorithm>

namespace redline::tune {

using measure::Phase;

PlanModel::PlanModel(const Observed& observed, PlanShapeOf plan_shape)
    : o_(observed), plan_shape_(std::move(plan_shape)) {
  const auto& seen = o_.seen;
  compute_ = seen.phase(Phase::Forward).seconds_per_step + seen.phase(Phase::Backward).seconds_per_step;
  const double cadence = cadence_seconds_per_step(o_.costs, o_.rates);
  per_step_ =
      seen.phase(Phase::Optimiser).seconds_per_step + o_.costs.log * o_.rates.log + o_.costs.monitor * o_.rates.monitor;
  double bare = seen.step_seconds;
  for (const Phase phase : {Phase::Log, Phase::Monitor, Phase::Validate, Phase::Checkpoint})
    bare -= seen.phase(phase).seconds_per_step;
  step_ = std::max(1e-9, bare) + cadence;
  if (plan_shape_) reference_ = plan_shape_({});
  anchor();
}

// The fitted costs give way to what was raced.
void PlanModel::anchor() {
  if (!reference_ || !o_.larger) return;
  const auto raced = [&](const Setting& setting, double ratio) -> std::optional<SampleCost> {
    const auto shape = plan_shape_(setting);
    if (!shape) return std::nullopt;
    return sample_cost(*shape, step_ / seen_samples() / ratio - around_compute(shape->samples_per_step));
  };
  const auto larger = raced(o_.larger->setting, o_.larger->ratio);
  const auto bucketed = o_.bucketed ? raced(o_.bucketed->setting, o_.larger->ratio * o_.bucketed->ratio) : std::nullopt;
  if (larger) anchor_micro_batches(sample_cost(*reference_, compute_ / seen_samples()), *larger, bucketed, o_);
  if (!larger || !o_.precise) return;
  const double pieces = larger->pieces * o_.micro_batch_seconds;
  const auto precise = raced(o_.precise->setting, o_.larger->ratio * o_.precise->ratio);
  if (!precise || larger->seconds <= pieces) return;
  precision_ = o_.precise->setting.at("trainer.precision");
  const double items = precise->seconds - pieces - larger->pieces * o_.cast_seconds;
  precision_cost_ = {o_.cast_seconds, std::clamp(items / (larger->seconds - pieces), 0.05, 20.0)};
}

bool PlanModel::knows_precision(const std::string& precision) const {
  return !precision_.empty() && precision == precision_;
}

PlanModel::PrecisionCost PlanModel::precision_cost(const Setting& setting) const {
  const auto found = setting.find("trainer.precision");
  return found != setting.end() && knows_precision(found->second) ? precision_cost_ : PrecisionCost{};
}

double PlanModel::seen_samples() const { return std::max(1e-9, o_.seen.samples_per_step); }

// Seconds of a sample outside forward and backward when a step has `samples`: the optimiser, the log and the monitor
// come once per step, all else with each sample (validations and checkpoints too: with_companions sees to that).
double PlanModel::around_compute(double samples) const {
  return std::max(0.0, step_ - compute_ - per_step_) / seen_samples() + per_step_ / std::max(1.0, samples);
}

SampleCost PlanModel::sample_cost(const PlanShape& shape, double seconds) const {
  const double padded = o_.items_per_sample / std::max(0.05, 1 - shape.padding_share);
  return {shape.micro_batches_per_step / std::max(1.0, shape.samples_per_step), o_.items_per_sample,
          padded - o_.items_per_sample, seconds};
}

double PlanModel::fitted_compute(const PlanShape& shape, const PrecisionCost& precision) const {
  const SampleCost cost = sample_cost(shape, 0);
  return cost.pieces * (o_.micro_batch_seconds + precision.piece_seconds) +
         precision.item_factor * (cost.items * o_.item_seconds + cost.padding * o_.padding_seconds);
}

// Both plans by the same fit: where that is off, most of it cancels.
double PlanModel::gain(const Setting& setting) const {
  if (const auto known = known_.find(setting); known != known_.end()) return known->second;
  const auto shape = reference_ ? plan_shape_(setting) : std::nullopt;
  const double reference = reference_ ? fitted_compute(*reference_, {}) : 0;
  double gain = 0;
  if (shape && reference > 0) {
    const double factor = std::clamp(fitted_compute(*shape, precision_cost(setting)) / reference, 0.05, 20.0);
    gain = step_ / seen_samples() / (around_compute(shape->samples_per_step) + factor * compute_ / seen_samples()) - 1;
  }
  return known_[setting] = gain;
}

}  // namespace redline::tune
