#include "doctor/plan_model.h"

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "doctor/rules/predict.h"

namespace redline::doctor {

using measure::Phase;

namespace {

constexpr const char* kPrecision = "trainer.precision";
// Of a predicted log gain whose costs were raced: predictions of the ledgers in bench/results are off by a fifth of it.
constexpr double kRacedMiss = 0.2;

}  // namespace

PlanShapeOf assumed_plan(const JobView& job, const Observation& seen) {
  const std::string batch = job.path("batch"), micro = job.path("micro_batch"), accumulate = job.path("accumulation"),
                    bucketing = job.path("bucketing");
  return [=, &job, &seen](const Setting& setting) -> std::optional<PlanShape> {
    const auto number = [&](const std::string& path, int64_t now) {
      const auto found = setting.find(path);
      return found == setting.end() ? now : parse_int(found->second).value_or(now);
    };
    const auto rows = static_cast<double>(number(batch, job.batch_size) * number(accumulate, job.accumulate));
    const auto piece = static_cast<double>(
        std::max<int64_t>(1, number(micro, std::min(job.micro_batch_size, number(batch, job.batch_size)))));
    const auto buckets = setting.find(bucketing);
    const bool on = buckets == setting.end() ? job.buckets : buckets->second == "true";
    const double padding = seen.padding_share * (on && !job.buckets ? kLeftByBuckets.mean : 1.0);
    return PlanShape{padding, std::max(1.0, rows / piece), rows};
  };
}

PlanModel::PlanModel(const Observation& seen, PlanShapeOf plan_shape, bool assumed)
    : seen_(seen), plan_shape_(std::move(plan_shape)), assumed_(assumed) {
  compute_ = seen.phase(Phase::Forward).seconds_per_step + seen.phase(Phase::Backward).seconds_per_step;
  per_step_ = seen.phase(Phase::Optimiser).seconds_per_step + seen.phase(Phase::Log).seconds_per_step +
              seen.phase(Phase::Monitor).seconds_per_step;
  if (plan_shape_) reference_ = plan_shape_({});
  anchor();
}

// The fitted costs give way to what was raced.
void PlanModel::anchor() {
  const Calibration& races = seen_.calibration;
  if (!reference_) return;
  const auto raced = [&](const Setting& setting, double ratio) -> std::optional<SampleCost> {
    const auto shape = plan_shape_(setting);
    if (!shape) return std::nullopt;
    return sample_cost(*shape, seen_.step_seconds / seen_samples() / ratio - around_compute(shape->samples_per_step));
  };
  const auto on_top_of_larger = [&](const std::optional<Calibration::Race>& race) {
    return race ? raced(race->setting, races.larger->ratio * race->ratio) : std::nullopt;
  };
  const SampleCost now = sample_cost(*reference_, compute_ / seen_samples());
  std::optional<SampleCost> larger, larger_precise;
  if (races.larger && (larger = raced(races.larger->setting, races.larger->ratio))) {
    anchor_pieces(now, *larger, on_top_of_larger(races.bucketed), seen_.pieces);
    larger_precise = on_top_of_larger(races.larger_precise);
  }
  if (!races.precise) return;
  const auto precise = raced(races.precise->setting, races.precise->ratio);
  if (!precise) return;
  precision_ = races.precise->setting.at(kPrecision);
  precision_cost_ = costs_of_precision({now, *precise}, larger && larger_precise
                                                            ? std::optional(BeforeAndAfter{*larger, *larger_precise})
                                                            : std::nullopt);
}

// Two races, two unknowns: pieces * p + factor * items = seconds. With one race an item and a piece change alike.
PlanModel::PrecisionCost PlanModel::costs_of_precision(const BeforeAndAfter& as_is,
                                                       const std::optional<BeforeAndAfter>& larger) const {
  const double piece = seen_.pieces.piece_seconds;
  const auto items = [&](const BeforeAndAfter& race) { return race.before.seconds - race.before.pieces * piece; };
  const double ratio = as_is.after.seconds / std::max(1e-12, as_is.before.seconds);
  const PrecisionCost alike{piece * (ratio - 1), ratio};
  if (!larger) return alike;
  const double apart = larger->before.pieces * items(as_is) - as_is.before.pieces * items(*larger);
  if (std::abs(apart) <= 0.05 * as_is.before.pieces * std::abs(items(*larger))) return alike;
  const double factor =
      (larger->before.pieces * as_is.after.seconds - as_is.before.pieces * larger->after.seconds) / apart;
  const double sound = std::clamp(factor, 0.05, 20.0);
  return {(as_is.after.seconds - sound * items(as_is)) / as_is.before.pieces - piece, sound};
}

bool PlanModel::knows_precision(const std::string& precision) const {
  return !precision_.empty() && precision == precision_;
}

PlanModel::PrecisionCost PlanModel::precision_cost(const Setting& setting) const {
  const auto found = setting.find(kPrecision);
  return found != setting.end() && knows_precision(found->second) ? precision_cost_ : PrecisionCost{};
}

double PlanModel::seen_samples() const { return std::max(1e-9, seen_.samples_per_step); }

// Seconds of a sample outside forward and backward when a step has `samples`: the optimiser, the log and the monitor
// come once per step, all else with each sample (validations and checkpoints too: with_companions sees to that).
double PlanModel::around_compute(double samples) const {
  return std::max(0.0, seen_.step_seconds - compute_ - per_step_) / seen_samples() + per_step_ / std::max(1.0, samples);
}

SampleCost PlanModel::sample_cost(const PlanShape& shape, double seconds) const {
  const double padded = seen_.pieces.items_per_sample / std::max(0.05, 1 - shape.padding_share);
  return {shape.micro_batches_per_step / std::max(1.0, shape.samples_per_step), seen_.pieces.items_per_sample,
          padded - seen_.pieces.items_per_sample, seconds};
}

double PlanModel::fitted_compute(const PlanShape& shape, const PrecisionCost& precision) const {
  const SampleCost cost = sample_cost(shape, 0);
  const double as_now = reference_ ? sample_cost(*reference_, 0).pieces : cost.pieces;
  // Larger pieces that were raced and are slower (they fall out of a cache) make a piece cost less than nothing.
  // Smaller ones than now need not be faster for it.
  const double pieces = seen_.pieces.piece_seconds < 0 ? std::min(cost.pieces, as_now) : cost.pieces;
  return pieces * seen_.pieces.piece_seconds + cost.pieces * precision.piece_seconds +
         precision.item_factor * (cost.items * seen_.pieces.item_seconds + cost.padding * seen_.pieces.padding_seconds);
}

// Both plans by the same fit: where that is off, most of it cancels.
double PlanModel::gain(const Setting& setting) const {
  if (const auto known = known_.find(setting); known != known_.end()) return known->second;
  const auto shape = reference_ ? plan_shape_(setting) : std::nullopt;
  const double reference = reference_ ? fitted_compute(*reference_, {}) : 0;
  double gain = 0;
  if (shape && reference > 0) {
    const double factor = std::clamp(fitted_compute(*shape, precision_cost(setting)) / reference, 0.05, 20.0);
    gain = seen_.step_seconds / seen_samples() /
               (around_compute(shape->samples_per_step) + factor * compute_ / seen_samples()) -
           1;
  }
  return known_[setting] = gain;
}

// Costs that were raced are known as well as the races, in proportion; fitted ones as well as the fit, and a plan that
// is only assumed adds what buckets may leave.
double PlanModel::deviation(const Setting& setting) const {
  const double log = std::log(std::max(0.1, 1 + gain(setting)));
  const Calibration& races = seen_.calibration;
  double far = 0, error = 0;
  for (const auto* const race : {&races.larger, &races.bucketed, &races.precise, &races.larger_precise}) {
    if (!*race) continue;
    const bool itself = (*race)->setting == setting && (race == &races.larger || race == &races.precise);
    if (itself) return std::hypot(kLeastMiss, (*race)->deviation);
    far += std::abs(std::log((*race)->ratio)), error = std::hypot(error, (*race)->deviation);
  }
  if (races.larger || (races.precise && setting.count(kPrecision) != 0))
    return std::hypot(kLeastMiss + kRacedMiss * std::abs(log),
                      error * std::min(1.0, std::abs(log) / std::max(0.02, far)));
  const double share = compute_share(seen_);
  const double fitted =
      seen_.costs.known ? share * std::hypot(seen_.costs.padding_error, seen_.costs.fixed_error) : 0.1 * share;
  return std::hypot(usual_deviation(log), fitted, assumed_ ? kLeftByBuckets.deviation * seen_.padding_share : 0.0);
}

}  // namespace redline::doctor
