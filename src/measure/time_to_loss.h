// How long a changed training takes to the loss of the reference: what a larger batch gains in samples per second it
// may lose in samples. Predicted from the gradient noise scale (McCandlish et al. 2018, "An Empirical Model of
// Large-Batch Training"), measured on held-out losses of paired runs. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "measure/statistics.h"

namespace redline::measure {

// Held-out losses along a run, by samples seen; ascending, the first before any step.
struct HeldOutCurve {
  std::vector<double> samples, losses;
};

// Samples at which a curve first reaches `level`, linear between its points; nullopt where it never does.
std::optional<double> samples_to_reach(const HeldOutCurve& curve, double level);

// Samples the reference needs over those the candidate needs, to the higher of their two last losses: then both have
// reached it and nothing is extrapolated. With `level`, to that loss where both reach it. nullopt: nothing was learned.
std::optional<double> pair_efficiency(const HeldOutCurve& reference, const HeldOutCurve& candidate,
                                      std::optional<double> level = std::nullopt);

// What a sample is worth by the ends of whole schedules: the reference's losses after half and after all of the
// samples, and the candidate's after all of them, by pair. The candidate's loss is that of a reference with so many
// times the samples, on the line that the two lengths give over the logarithm of the samples: a run that is annealed at
// its end cannot be continued, so that waiting for its loss to fall further would measure the schedule. nullopt where
// the reference's second half teaches it nothing that its seeds can tell, and with fewer than two pairs.
std::optional<RatioEstimate> schedule_efficiency(std::span<const double> half, std::span<const double> whole,
                                                 std::span<const double> candidate);

// The mean over pairs on the log scale, with Student's 95 % interval. Requires a value.
RatioEstimate mean_ratio(std::span<const double> ratios);
// Both factors at once, their errors independent.
RatioEstimate product(const RatioEstimate& a, const RatioEstimate& b);

// Gradient noise over a stretch of training: the trace of the per-sample covariance over the squared length of the true
// gradient, in samples.
struct NoiseScale {
  double samples = 0;  // seen when the stretch ended
  double noise = 0;
};

// What a sample is worth in steps of `batch` samples, against steps of `reference` samples: 1 / mean over stretches of
// (noise + batch) / (noise + reference). 1 without any.
double noise_efficiency(std::span<const NoiseScale> noise, double reference, double batch);

}  // namespace redline::measure
